/*
 * execute.h
 *		Runs a statement that incload has made, and counts what it did.
 */
#ifndef INCLOAD_EXECUTE_H
#define INCLOAD_EXECUTE_H

#include "postgres.h"

#include "tcop/dest.h"
#include "utils/queryenvironment.h"

typedef struct ExecuteCounts
{
	uint64		processed;		/* rows written, or returned */
	uint64		merge_inserted; /* insert actions that MERGE took, a trigger's refusal included */
	uint64		merge_updated;	/* update actions that wrote a row */
} ExecuteCounts;

/*
 * Plans and runs one statement as the current user, seeing the relations of
 * the environment (may be NULL). Rows go to dest (NULL: nowhere).
 */
extern ExecuteCounts execute_statement(const char *sql, QueryEnvironment *environment,
									   DestReceiver *dest);

#endif							/* INCLOAD_EXECUTE_H */
