/*
 * incload.h
 *		What every file of incload may use.
 */
#ifndef INCLOAD_H
#define INCLOAD_H

/* the wait event under which incload waits for a source */
extern uint32 incload_wait_event_source(void);

#endif							/* INCLOAD_H */
