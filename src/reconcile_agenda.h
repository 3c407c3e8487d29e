/*
 * reconcile_agenda.h
 *		When jobs are reconciled by themselves: the option reconcile_schedule.
 *
 * Every function works as the extension's owner, inside the caller's transaction.
 */
#ifndef INCLOAD_RECONCILE_AGENDA_H
#define INCLOAD_RECONCILE_AGENDA_H

#include "postgres.h"

#include "job.h"
#include "text_rows.h"

/* an ERROR (22023 and others) where the options cannot work */
extern void reconcile_agenda_check(const Job *job);

/* plans the next one from now on, or takes the job from the agenda */
extern void reconcile_agenda_enter(const Job *job);

/* the one that is due begins: plans the next one, whatever becomes of it */
extern void reconcile_agenda_begin(const Job *job);

/* jobs that are due: rows of job_id, job, owner */
extern TextRows *reconcile_agenda_due(void);

#endif							/* INCLOAD_RECONCILE_AGENDA_H */
