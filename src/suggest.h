/*
 * suggest.h
 *		Which watermark, key and strategy fit a source.
 */
#ifndef INCLOAD_SUGGEST_H
#define INCLOAD_SUGGEST_H

#include "postgres.h"

#include "job.h"
#include "source.h"

/* one candidate, as incload_suggest shows it */
typedef struct Suggestion
{
	const char *kind;			/* watermark, key, strategy */
	char	   *candidate;		/* a column, an array literal of columns, a strategy */
	List	   *names;			/* for a key: its columns, char * */
	int			score;			/* 0 to 100 */
	bool		chosen;
	char	   *reason;
} Suggestion;

/*
 * All candidates for the job's source, best first within each kind. What the
 * job already says (a key, a watermark, a strategy it was given) is kept: the
 * rest is chosen to go with it. "given_strategy" tells whether job->strategy
 * means anything yet.
 */
extern List *suggest(Source *source, const Job *job, bool given_strategy);

/* the chosen one of a kind, or NULL */
extern Suggestion *suggest_chosen(List *suggestions, const char *kind);

#endif							/* INCLOAD_SUGGEST_H */
