/*
 * script.h
 *		What is asked over a connection, from one use of it to the next.
 */
#ifndef INCLOAD_SCRIPT_H
#define INCLOAD_SCRIPT_H

#include "postgres.h"

#include "nodes/pg_list.h"

/* most arguments that a question has: those of the settings (remote.c) */
#define MAX_ARGUMENTS 4

typedef struct Question
{
	bool		wants_types;	/* of the columns, and no rows */
	char	   *sql;
	int			narguments;
	char	   *arguments[MAX_ARGUMENTS];
	bool		is_settled;		/* asked twice running, at the same place */
} Question;

/* Script: what was asked the last time under that name, in order */
typedef struct Script
{
	char	   *name;
	MemoryContext context;
	List	   *questions;		/* of Question * */
	char	   *last;			/* what the next use asks after all of these; NULL: nothing */
} Script;

/* a copy in the current memory context, not settled */
extern Question *question_copy(const Question *question);

extern bool question_same(const Question *a, const Question *b);

/* the one of that name, which is added to the list in "context" if it is not there */
extern Script *script_find(List **scripts, const char *name, MemoryContext context);

/* writes down that a question is asked at a place, from 0, which is at most the one after the last */
extern void script_note(Script *script, int place, const Question *question);

/* writes down what the next use asks last, or, with NULL, that it is not known */
extern void script_note_last(Script *script, const char *sql);

/* drops what is beyond so many questions */
extern void script_shorten(Script *script, int length);

#endif							/* INCLOAD_SCRIPT_H */
