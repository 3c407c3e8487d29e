/*
 * alert.h
 *		Events on their way to those who want to be told.
 */
#ifndef INCLOAD_ALERT_H
#define INCLOAD_ALERT_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* once a process, in a memory context that lives as long */
extern void alert_begin(MemoryContext context);

/*
 * Outside of a transaction: puts down what became of what was sent, and begins
 * to send what is due. An error is reported, and ends nothing. Returns when to look again.
 */
extern TimestampTz alert_look(void);

/* waits for the latch, for so many ms, or until something that was sent has an outcome */
extern void alert_wait(long timeout_ms);

#endif							/* INCLOAD_ALERT_H */
