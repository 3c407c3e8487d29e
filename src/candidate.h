/*
 * candidate.h
 *		How well a column of a source serves as its watermark.
 */
#ifndef INCLOAD_CANDIDATE_H
#define INCLOAD_CANDIDATE_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "lib/stringinfo.h"

#include "facts.h"
#include "job.h"
#include "nature.h"
#include "suggest.h"

/* Candidate: a watermark that may be suggested, and what the choice goes by */
typedef struct Candidate
{
	Suggestion *suggestion;
	WatermarkNature nature;
	bool		is_possible;	/* good enough to be chosen without being asked for */
} Candidate;

/* rates a column, with reasons; NULL where it cannot be a watermark */
extern Candidate *candidate_of_column(const Job *job, const SourceFacts *facts,
									  Form_pg_attribute att);

/* is it a date or a timestamp, or a domain over one? */
extern bool type_is_time(Oid type);

extern Suggestion *suggestion_new(const char *kind, const char *candidate, int score, char *reason);

/* adds a phrase to a reason */
extern void reason_add(StringInfo reason, const char *phrase);

#endif							/* INCLOAD_CANDIDATE_H */
