/*
 * trouble.h
 *		What an error that others raise says to the user of a job.
 */
#ifndef INCLOAD_TROUBLE_H
#define INCLOAD_TROUBLE_H

#include "postgres.h"

/* Trouble: a stretch of code, and what an error in it is told to mean; lives on the stack */
typedef struct Trouble
{
	ErrorContextCallback callback;
	const char *detail;
	const char *hint;
	const char *row_hint;		/* in its stead where a row is to blame (classes 22 and 23); may be NULL */
} Trouble;

/*
 * From here to trouble_end(), an ERROR about data, names or SQL that comes
 * without a detail or a hint gets these. The texts must live that long. An
 * error leaves the stretch by itself. row_hint may be set after the call.
 */
extern void trouble_begin(Trouble *trouble, const char *detail, const char *hint);
extern void trouble_end(Trouble *trouble);

/* the same with the texts of another one, which need not have begun */
extern void trouble_begin_like(Trouble *trouble, const Trouble *texts);

/* is this the detail of a stretch that is open, and no error's own? */
extern bool trouble_said(const char *detail);

#endif							/* INCLOAD_TROUBLE_H */
