/*
 * split.h
 *		One read as several queries, for readers that read side by side.
 */
#ifndef INCLOAD_SPLIT_H
#define INCLOAD_SPLIT_H

#include "postgres.h"

#include "job.h"
#include "query.h"
#include "shape.h"
#include "source.h"
#include "window.h"

/*
 * The queries (of char *) that read a window: as many as the option "parallel"
 * says where everything is read, in no order, and where the rows can be told
 * apart by ranges; else one. Each row is in exactly one of them. Asks the source.
 */
extern List *split_read(Source *source, const Job *job, const Shape *shape, const Window *window,
						ReadOrder order, int64 limit);

#endif							/* INCLOAD_SPLIT_H */
