/*
 * brake.h
 *		Reading no faster than so many rows a second, for the source's sake.
 */
#ifndef INCLOAD_BRAKE_H
#define INCLOAD_BRAKE_H

#include "postgres.h"

#include "portability/instr_time.h"

typedef struct Brake
{
	int64		rate;			/* rows a second; 0: as fast as they come */
	int64		rows;			/* since then */
	instr_time	since;
} Brake;

/* begins to count */
extern void brake_release(Brake *brake);

/* a row has come: waits, so that the source does, too, if it was too early */
extern void brake_row(Brake *brake);

#endif							/* INCLOAD_BRAKE_H */
