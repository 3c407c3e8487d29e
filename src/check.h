/*
 * check.h
 *		What incload_check's rules work on.
 */
#ifndef INCLOAD_CHECK_H
#define INCLOAD_CHECK_H

#include "postgres.h"

#include "facts.h"
#include "job.h"
#include "shape.h"
#include "source.h"

/* Check: a job under examination; what could not be had is NULL */
typedef struct Check
{
	Job		   *job;
	const char *schema;			/* of incload's functions, quoted */
	Source	   *source;
	SourceFacts *facts;
	Shape	   *shape;
	List	   *findings;		/* of Finding * */
} Check;

/* Finding: one row of incload_check */
typedef struct Finding
{
	const char *severity;		/* error, warning, info */
	const char *code;
	char	   *message;
	char	   *sql;			/* what mends it, or NULL */
} Finding;

extern void check_add(Check *check, const char *severity, const char *code,
					  char *message, char *sql);

/* the rule about the way to the source; needs nothing but the job */
extern void check_tls(Check *check);

/* the rules about the source's columns and reading; need facts, the last a shape */
extern void check_watermark(Check *check);
extern void check_source_key(Check *check);
extern void check_schema(Check *check);
extern void check_reading(Check *check);

/* does an index at the source begin with the watermark? "column" is NULL for an expression */
extern bool check_watermark_is_indexed(Check *check, const SourceColumn *column);

/* does the watermark stay as it is when its row changes? */
extern bool check_watermark_stays(Check *check, SourceColumn *column);

/* the rules about rows that are deleted at the source; need a shape */
extern void check_deletes(Check *check);

/* the rules about the target; the last two need a shape */
extern void check_target_key(Check *check);
extern void check_types(Check *check);
extern void check_swap(Check *check);

#endif							/* INCLOAD_CHECK_H */
