/*
 * job_change.h
 *		What an event says of a change to a job: from what to what.
 */
#ifndef INCLOAD_JOB_CHANGE_H
#define INCLOAD_JOB_CHANGE_H

#include "postgres.h"

/* how a job is defined as it is stored now, the text of a JSON object: by the names of incload_create_job */
extern char *job_definition(int64 job_id);

/* details of an event: the whole definition that came, or that has gone; NULL for none */
extern char *job_change_details(const char *from, const char *to);

/*
 * The same with no more than what the two differ in, options one by one; null stands for what was not
 * set. What "more" has is put beside; it is the text of a JSON object.
 */
extern char *job_change_difference(const char *from, const char *to, const char *more);

#endif							/* INCLOAD_JOB_CHANGE_H */
