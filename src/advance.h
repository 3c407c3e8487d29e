/*
 * advance.h
 *		How far a batch takes the checkpoint, and what is to be said of it.
 */
#ifndef INCLOAD_ADVANCE_H
#define INCLOAD_ADVANCE_H

#include "postgres.h"

#include "batch.h"

/* the place after the last row of a batch that is not the last one */
extern Bound advance_place(const Run *run);

/*
 * Moves the checkpoint as far as the batch, and never beyond the horizon: what
 * is above may still get company, and is read again.
 */
extern void advance_checkpoint(Run *run, bool is_last);

/* at the end of a run: its lag, and events for what holds the checkpoint back or lies ahead of the clock */
extern void advance_note(Run *run);

#endif							/* INCLOAD_ADVANCE_H */
