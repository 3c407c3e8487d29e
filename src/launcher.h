/*
 * launcher.h
 *		The background worker that keeps a scheduler in each database.
 */
#ifndef INCLOAD_LAUNCHER_H
#define INCLOAD_LAUNCHER_H

/* from _PG_init, where the library is preloaded */
extern void launcher_register(void);

#endif							/* INCLOAD_LAUNCHER_H */
