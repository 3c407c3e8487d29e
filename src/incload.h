/*
 * incload.h
 *		What every file of incload may use.
 */
#ifndef INCLOAD_H
#define INCLOAD_H

/* the wait event under which incload waits for a source */
extern uint32 incload_wait_event_source(void);

/* under which a background worker waits for something to do */
extern uint32 incload_wait_event_idle(void);

/* under which a run waits so as to be no faster than the option max_rate */
extern uint32 incload_wait_event_brake(void);

/* settings */
extern char *incload_databases;	/* a list, or * for each that has the extension */
extern int	incload_max_workers;	/* runners at once */
extern int	incload_naptime;	/* milliseconds */
extern int	incload_run_retention;	/* minutes; 0 for ever */
extern char *incload_runbook_url;	/* read by SQL: incload.runbook() */

#endif							/* INCLOAD_H */
