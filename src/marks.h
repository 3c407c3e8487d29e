/*
 * marks.h
 *		What holds for databases as long as the server runs, in shared memory.
 *
 * Who has one for himself, which was stopped, and what is new. Who asks with the lock of the
 * slots held (slots.h) is sure that no worker enters a database between his question and what he does.
 */
#ifndef INCLOAD_MARKS_H
#define INCLOAD_MARKS_H

#include "postgres.h"

/* asks for the memory; from _PG_init, where the library is preloaded */
extern void marks_preload(void);

/*
 * This process has a database for itself, until it lets go of it. False where too many
 * databases have marks. See slots_hold().
 */
extern bool marks_hold(Oid database);
extern void marks_release(Oid database);
extern bool marks_is_held(Oid database);

/* incload_worker_stop() and _start(); false where too many databases have marks */
extern bool marks_set_stopped(Oid database, bool is_stopped);
extern bool marks_is_stopped(Oid database);

/* that databases came or went; a number that changes with it */
extern void marks_tell_news(void);
extern uint32 marks_news(void);

/* that the extension was created in a database; how often it was in any, and whether it was there since then */
extern void marks_tell_created(Oid database);
extern uint32 marks_creations(void);
extern bool marks_was_created(Oid database, uint32 since);

#endif							/* INCLOAD_MARKS_H */
