/*
 * sift.h
 *		Finds the rows of a batch that the target refuses, and applies the others.
 */
#ifndef INCLOAD_SIFT_H
#define INCLOAD_SIFT_H

#include "postgres.h"

#include "stage.h"

/* applies the rows of a stage, all or none */
typedef void (*SiftApply) (Stage *stage, void *arg);

/* the staged rows that are refused, by themselves and beside all others, go to the stage's rejects */
extern void sift(Stage *stage, SiftApply apply, void *arg);

#endif							/* INCLOAD_SIFT_H */
