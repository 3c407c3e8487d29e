/*
 * text_rows.h
 *		A small query result held as text: what catalog and sources answer.
 */
#ifndef INCLOAD_TEXT_ROWS_H
#define INCLOAD_TEXT_ROWS_H

/*
 * TextRows: value[row][column], NULL for an SQL null. Lives in the memory
 * context that was current when the query was asked.
 */
typedef struct TextRows
{
	int			nrows;
	int			ncols;
	char	 ***value;
} TextRows;

/* copies what the last SPI_execute… returned into the given context */
extern TextRows *text_rows_from_spi(MemoryContext context);

/* a query in this database, with a new snapshot, in the formats and with the rights that are in force */
extern TextRows *target_ask(const char *sql);

#endif							/* INCLOAD_TEXT_ROWS_H */
