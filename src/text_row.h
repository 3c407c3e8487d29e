/*
 * text_row.h
 *		Rows whose values are text, and are yet to be turned into values of their types.
 */
#ifndef INCLOAD_TEXT_ROW_H
#define INCLOAD_TEXT_ROW_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "fmgr.h"

/* TextInput: the input functions of a row's columns */
typedef struct TextInput
{
	TupleDesc	desc;
	FmgrInfo   *functions;
	Oid		   *params;
} TextInput;

extern TextInput *text_input_create(TupleDesc desc);

/* turns a row of texts, NULL for an SQL null, into values; the error of a value that is none */
extern void text_input_row(TextInput *input, char **texts, Datum *values, bool *nulls);

/*
 * Takes a line of COPY's text format apart, in place, without the newline at its end: so many
 * texts. An ERROR if there are not so many.
 */
extern void text_row_split(char *line, int n, char **texts);

/* a line without what is not in this database's encoding: such a byte stands there as \xNN, as COPY writes it */
extern char *text_row_clean(const char *line, int length, int encoding);

/* a row of values as texts */
extern char **text_row_print(TupleDesc desc, Datum *values, bool *nulls);

#endif							/* INCLOAD_TEXT_ROW_H */
