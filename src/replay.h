/*
 * replay.h
 *		What a changed definition means for rows that are loaded already.
 */
#ifndef INCLOAD_REPLAY_H
#define INCLOAD_REPLAY_H

#include "postgres.h"

#include "job.h"

/*
 * Tells, by a NOTICE and by the event rows_not_replayed, that rows below the checkpoint stay as
 * they are, and which call changes that; nothing where no row would be another one.
 */
extern void replay_tell(const Job *old, const Job *new);

#endif							/* INCLOAD_REPLAY_H */
