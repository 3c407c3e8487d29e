/*
 * scope.h
 *		Which rows of source and target a job is about.
 */
#ifndef INCLOAD_SCOPE_H
#define INCLOAD_SCOPE_H

#include "postgres.h"

#include "job.h"
#include "shape.h"
#include "window.h"

/*
 * Scope: at the source, the rows of a window that pass the option "filter"; here,
 * those that would pass both, where their columns tell.
 */
typedef struct Scope
{
	Window		window;			/* what a job loads sooner or later, by start_at and null_watermark */
	char	   *source;			/* of those, the ones that the target is to have; NULL: all */
	char	   *target;			/* the same as a condition on a row "t" of the target; NULL: every row */
	const char *unknown;		/* why the target's rows do not tell; NULL: they do */
} Scope;

extern Scope *scope_of(const Job *job, const Shape *shape);

/* 0A000 where the target's rows do not tell whether the job is about them; "what" is what needs to know it */
extern void scope_require_known(const Job *job, const Scope *scope, const char *what);

#endif							/* INCLOAD_SCOPE_H */
