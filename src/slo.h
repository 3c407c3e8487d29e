/*
 * slo.h
 *		What a job has achieved, against its objectives.
 */
#ifndef INCLOAD_SLO_H
#define INCLOAD_SLO_H

#include "postgres.h"

#include "job.h"

/* the options freshness_slo and success_slo: 22023 for what could never be met, or allows for nothing */
extern void slo_check(const Job *job);

/* does the caller see the job's history? */
extern bool slo_may_see(const Job *job);

#endif							/* INCLOAD_SLO_H */
