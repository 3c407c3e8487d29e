/*
 * peek.h
 *		Is there nothing new? Asked ahead, so that most empty runs need not read.
 */
#ifndef INCLOAD_PEEK_H
#define INCLOAD_PEEK_H

#include "batch.h"

/*
 * Once it is known what the run reads: was it asked ahead whether that has any
 * rows, and has it none? False: not known.
 */
extern bool peek_has_none(Run *run);

/*
 * At the end of a run: if it has quickly read nothing, the next run of this
 * session asks ahead whether there is anything.
 */
extern void peek_foretell(Run *run);

#endif							/* INCLOAD_PEEK_H */
