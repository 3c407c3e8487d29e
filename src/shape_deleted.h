/*
 * shape_deleted.h
 *		What a job's shape says of rows that are marked as deleted.
 */
#ifndef INCLOAD_SHAPE_DELETED_H
#define INCLOAD_SHAPE_DELETED_H

#include "postgres.h"

#include "shape.h"

/* for shape_build(), once columns and watermark are known: the options deletes soft, deleted_column and deleted_rows */
extern void shape_add_deleted(const Job *job, Shape *shape);

#endif							/* INCLOAD_SHAPE_DELETED_H */
