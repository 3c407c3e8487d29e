/*
 * fault.h
 *		Errors that pass by themselves, and those that somebody has to mend.
 */
#ifndef INCLOAD_FAULT_H
#define INCLOAD_FAULT_H

#include "postgres.h"

/* may what failed with this SQLSTATE work when it is tried again a little later? */
extern bool fault_is_passing(int sqlstate);

#endif							/* INCLOAD_FAULT_H */
