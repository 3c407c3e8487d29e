/*
 * shape_columns.h
 *		Which columns of its source a job reads: for shape.c, and for who asks what changed.
 */
#ifndef INCLOAD_SHAPE_COLUMNS_H
#define INCLOAD_SHAPE_COLUMNS_H

#include "postgres.h"

#include "facts.h"
#include "job.h"
#include "source.h"

/* does the job want this column of its source, by its options? */
extern bool shape_wants(const Job *job, const char *name);

/* names of all columns (char *) that the options let through, transforms included */
extern List *shape_loaded_names(const Job *job);

/* is it named by them, or a transform's, so that it cannot be left out? */
extern bool shape_names(const Job *job, const char *name);

/* is a column that the target has no place for left out, as drift.c has decided and told, or an error? */
extern bool shape_may_leave_out(const Job *job, const char *name);

/* a column that is gone at the source is left out from here on; 42703 for one without which there is no job */
extern void shape_note_gone(Source *source, const Job *job, const SourceFacts *facts);

#endif							/* INCLOAD_SHAPE_COLUMNS_H */
