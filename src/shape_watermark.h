/*
 * shape_watermark.h
 *		What a job's shape says of its watermark; for shape.c.
 */
#ifndef INCLOAD_SHAPE_WATERMARK_H
#define INCLOAD_SHAPE_WATERMARK_H

#include "postgres.h"

#include "facts.h"
#include "shape.h"

/* fills in all that the shape, whose columns and key are there, says of the watermark and its fallback */
extern void shape_add_watermark(Source *source, const Job *job, Shape *shape,
								const SourceFacts *facts, Oid type, int32 typmod,
								Oid collation);

/* is a value staged in the target's type still the one that the source has? */
extern bool column_keeps_digits(const LoadColumn *column);

#endif							/* INCLOAD_SHAPE_WATERMARK_H */
