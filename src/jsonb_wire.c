/*
 * jsonb_wire.c
 *		Reads jsonb as a server sends it, in one pass.
 *
 * The text is read once, into a list of tokens in the order of the text: how many
 * children each container has is known then, and how much room all takes. The
 * value is written from that list: an object has all its keys before its values.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/copyfrom_internal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

#include "compat.h"
#include "jsonb_wire.h"

#define WIRE_VERSION 1

/*
 * Longer texts and deeper ones are left to the server: it knows what is too large
 * for a jsonb, and for the stack. At this length, nothing is.
 */
#define LONGEST_TEXT (16 * 1024 * 1024)
#define DEEPEST 64

/* what goes by way of int64: any number of so many digits fits */
#define INT64_DIGITS 18

#define PADDING (sizeof(uint32) - 1)
/* a numeric at most: headers, and four digits in two bytes, counted from the point */
#define NUMBER_ROOM(ndigits) (PADDING + 8 + ((ndigits) / 4 + 2) * sizeof(int16))

#define TOKENS_AT_HAND 64

typedef enum Kind
{
	KIND_NULL,
	KIND_FALSE,
	KIND_TRUE,
	KIND_STRING,
	KIND_NUMBER,				/* an int64 and where its point is */
	KIND_LONG_NUMBER,			/* a text */
	KIND_ARRAY,
	KIND_OBJECT					/* its children: a key, its value, the next key… */
} Kind;

typedef struct Token
{
	uint8		kind;
	uint8		scale;			/* of a number: digits after the point */
	uint32		count;			/* bytes of a text; elements of an array; pairs of an object */
	union
	{
		const char *text;
		int64		number;
		int			next;		/* of a container: the token after its last one */
	}			is;
} Token;

typedef struct Reader
{
	const char *at;
	const char *end;
	int			depth;
	Size		size;			/* of the value, at most */
	char	   *decoded;		/* room for strings that have escapes; NULL: none had one yet */
	Token	   *tokens;
	int			ntokens;
	int			room;
	Token		at_hand[TOKENS_AT_HAND];
} Reader;

typedef struct Writer
{
	const Token *tokens;
	char	   *start;
	char	   *at;
	char	   *end;
} Writer;

static bool read_value(Reader *r);
static int	write_container(Writer *w, int number, JEntry *entry);

/*
 * Reading. Each function takes what it is named for, or returns false, and then
 * all is up to the server.
 */

/* a token, and its entry in its parent, with the room that its own bytes take */
static inline Token *
add_token(Reader *r, Kind kind, Size size)
{
	Token	   *token;

	if (r->ntokens == r->room)
	{
		Token	   *more = palloc(sizeof(Token) * r->room * 2);

		memcpy(more, r->tokens, sizeof(Token) * r->room);
		if (r->tokens != r->at_hand)
			pfree(r->tokens);
		r->tokens = more;
		r->room *= 2;
	}
	token = &r->tokens[r->ntokens++];
	token->kind = kind;
	r->size += sizeof(JEntry) + size;
	return token;
}

static inline void
add_text(Reader *r, Kind kind, const char *text, uint32 length, Size size)
{
	Token	   *token = add_token(r, kind, size);

	token->count = length;
	token->is.text = text;
}

static inline bool
take(Reader *r, const char *word, int length)
{
	if (r->end - r->at < length || memcmp(r->at, word, length) != 0)
		return false;
	r->at += length;
	return true;
}

/* what stands behind \u: four digits, of a character that has no other way to be written */
static bool
take_control(Reader *r, char *c)
{
	static const char digits[] = "0123456789abcdef";
	const char *digit;

	if (r->end - r->at < 4 || r->at[0] != '0' || r->at[1] != '0' || (r->at[2] != '0' && r->at[2] != '1'))
		return false;
	digit = memchr(digits, r->at[3], 16);
	if (digit == NULL)
		return false;
	*c = (r->at[2] - '0') * 16 + (digit - digits);
	r->at += 4;
	return *c != '\0';
}

static bool
take_escape(Reader *r, char *c)
{
	static const char letters[] = "\"\\bfnrt";
	static const char characters[] = "\"\\\b\f\n\r\t";
	const char *letter;

	if (r->end - r->at < 2)
		return false;
	r->at += 2;
	if (r->at[-1] == 'u')
		return take_control(r, c);
	letter = memchr(letters, r->at[-1], strlen(letters));
	if (letter == NULL)
		return false;
	*c = characters[letter - letters];
	return true;
}

/*
 * Up to what cannot stand for itself in a string. In every encoding that a
 * database can have, the bytes of longer characters are above ASCII.
 */
static inline const char *
plain_end(const char *at, const char *end)
{
	while (at < end && *at != '"' && *at != '\\' && (unsigned char) *at >= ' ')
		at++;
	return at;
}

/* the rest of a string that began at "start" and has come to an escape */
static bool
read_escaped(Reader *r, const char *start)
{
	char	   *text;
	char	   *to;

	/* all strings together are no longer than the text */
	if (r->decoded == NULL)
		r->decoded = palloc(r->end - start);
	text = to = r->decoded;
	for (;;)
	{
		memcpy(to, start, r->at - start);
		to += r->at - start;
		if (r->at == r->end)
			return false;
		if (*r->at == '"')
			break;
		if (*r->at != '\\' || !take_escape(r, to))
			return false;
		to++;
		start = r->at;
		r->at = plain_end(start, r->end);
	}
	r->at++;
	r->decoded = to;
	add_text(r, KIND_STRING, text, to - text, to - text);
	return true;
}

static bool
read_string(Reader *r)
{
	const char *start = r->at + 1;
	const char *stop;

	if (r->at == r->end || *r->at != '"')
		return false;
	stop = r->at = plain_end(start, r->end);
	if (stop == r->end || *stop != '"')
		return read_escaped(r, start);
	r->at++;
	add_text(r, KIND_STRING, start, stop - start, stop - start);
	return true;
}

static inline const char *
take_digits(const char *at, const char *end, uint64 *value, int *ndigits)
{
	for (; at < end && *at >= '0' && *at <= '9'; at++)
	{
		/* what does not fit is not looked at */
		*value = *value * 10 + (*at - '0');
		/* zeros in front do not count */
		if (*value != 0)
			(*ndigits)++;
	}
	return at;
}

static bool
read_number(Reader *r)
{
	const char *start = r->at;
	const char *at = start;
	bool		is_negative = *at == '-';
	uint64		value = 0;
	int			ndigits = 0;
	int			scale = 0;
	Token	   *token;

	if (is_negative)
		at++;
	if (at == r->end || *at < '0' || *at > '9')
		return false;
	/* a zero in front of other digits is no JSON */
	at = *at == '0' ? at + 1 : take_digits(at, r->end, &value, &ndigits);
	if (at < r->end && *at == '.')
	{
		const char *fraction = at + 1;

		at = take_digits(fraction, r->end, &value, &ndigits);
		scale = at - fraction;
		if (scale == 0)
			return false;
	}
	r->at = at;

	/* a zero of a sign is for the server to judge */
	if (ndigits > INT64_DIGITS || scale > PG_UINT8_MAX || (is_negative && value == 0))
	{
		add_text(r, KIND_LONG_NUMBER, start, at - start, NUMBER_ROOM(at - start));
		return true;
	}
	token = add_token(r, KIND_NUMBER, NUMBER_ROOM(ndigits));
	token->scale = scale;
	token->is.number = is_negative ? -(int64) value : (int64) value;
	return true;
}

/* its children are to follow */
static bool
begin_container(Reader *r, Kind kind, int *number)
{
	if (r->depth++ == DEEPEST)
		return false;
	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	r->at++;
	*number = r->ntokens;
	add_token(r, kind, PADDING + sizeof(uint32));
	return true;
}

static void
end_container(Reader *r, int number, uint32 count)
{
	r->tokens[number].count = count;
	r->tokens[number].is.next = r->ntokens;
	r->depth--;
}

static bool
read_array(Reader *r)
{
	int			number;
	uint32		count = 0;

	if (!begin_container(r, KIND_ARRAY, &number))
		return false;
	while (!take(r, "]", 1))
	{
		if ((count > 0 && !take(r, ", ", 2)) || !read_value(r))
			return false;
		count++;
	}
	end_container(r, number, count);
	return true;
}

/* shorter keys come first; equal ones are for the server to choose from */
static inline bool
in_order(const Token *key, const Token *next)
{
	if (key->count != next->count)
		return key->count < next->count;
	return memcmp(key->is.text, next->is.text, key->count) < 0;
}

static bool
read_object(Reader *r)
{
	int			number;
	uint32		count = 0;
	int			last = -1;

	if (!begin_container(r, KIND_OBJECT, &number))
		return false;
	while (!take(r, "}", 1))
	{
		int			key = r->ntokens;

		if ((count > 0 && !take(r, ", ", 2)) || !read_string(r))
			return false;
		if (count > 0 && !in_order(&r->tokens[last], &r->tokens[key]))
			return false;
		if (!take(r, ": ", 2) || !read_value(r))
			return false;
		last = key;
		count++;
	}
	end_container(r, number, count);
	return true;
}

static bool
read_word(Reader *r, const char *word, int length, Kind kind)
{
	if (!take(r, word, length))
		return false;
	add_token(r, kind, 0);
	return true;
}

static bool
read_value(Reader *r)
{
	if (r->at == r->end)
		return false;
	switch (*r->at)
	{
		case '"':
			return read_string(r);
		case '{':
			return read_object(r);
		case '[':
			return read_array(r);
		case 'n':
			return read_word(r, "null", 4, KIND_NULL);
		case 'f':
			return read_word(r, "false", 5, KIND_FALSE);
		case 't':
			return read_word(r, "true", 4, KIND_TRUE);
		default:
			return read_number(r);
	}
}

/*
 * Writing. What has to be aligned is so from the start of the value; the bytes
 * between are zeros, and count as its own.
 */

static inline void
pad(Writer *w)
{
	while ((w->at - w->start) % sizeof(uint32) != 0)
		*w->at++ = '\0';
}

static void
write_number(Writer *w, const Token *token)
{
	Numeric		numeric;
	Size		size;

	if (token->kind == KIND_LONG_NUMBER)
	{
		char	   *text = pnstrdup(token->is.text, token->count);

		numeric = DatumGetNumeric(DirectFunctionCall3(numeric_in, CStringGetDatum(text),
													  ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
		pfree(text);
	}
	else if (token->scale == 0)
		numeric = int64_to_numeric(token->is.number);
	else
		numeric = int64_div_fast_to_numeric(token->is.number, token->scale);

	pad(w);
	size = VARSIZE_ANY(numeric);
	if (size > w->end - w->at)
		elog(ERROR, "a numeric of %zu bytes is larger than was expected", size);
	memcpy(w->at, numeric, size);
	w->at += size;
	pfree(numeric);
}

/* a value and its entry; returns the number of the token behind it */
static int
write_value(Writer *w, int number, JEntry *entry)
{
	const Token *token = &w->tokens[number];
	char	   *start = w->at;

	switch ((Kind) token->kind)
	{
		case KIND_NULL:
			*entry = JENTRY_ISNULL;
			break;
		case KIND_FALSE:
			*entry = JENTRY_ISBOOL_FALSE;
			break;
		case KIND_TRUE:
			*entry = JENTRY_ISBOOL_TRUE;
			break;
		case KIND_STRING:
			memcpy(w->at, token->is.text, token->count);
			w->at += token->count;
			*entry = JENTRY_ISSTRING | token->count;
			break;
		case KIND_NUMBER:
		case KIND_LONG_NUMBER:
			write_number(w, token);
			*entry = JENTRY_ISNUMERIC | (w->at - start);
			break;
		case KIND_ARRAY:
		case KIND_OBJECT:
			return write_container(w, number, entry);
	}
	return number + 1;
}

/* puts an entry into its place; now and then, one has where its bytes end, and not how many there are */
static inline void
put_entry(JEntry *entries, uint32 i, JEntry entry, uint32 *end)
{
	*end += JBE_OFFLENFLD(entry);
	if (i % JB_OFFSET_STRIDE == 0)
		entry = (entry & JENTRY_TYPEMASK) | JENTRY_HAS_OFF | *end;
	entries[i] = entry;
}

static int
next_token(const Writer *w, int number)
{
	const Token *token = &w->tokens[number];

	return token->kind == KIND_ARRAY || token->kind == KIND_OBJECT ? token->is.next : number + 1;
}

static int
write_container(Writer *w, int number, JEntry *entry)
{
	bool		is_object = w->tokens[number].kind == KIND_OBJECT;
	uint32		count = w->tokens[number].count;
	char	   *start = w->at;
	JEntry	   *entries;
	JEntry		child;
	uint32		end = 0;
	uint32		n = 0;
	int			at;

	pad(w);
	*(uint32 *) w->at = count | (is_object ? JB_FOBJECT : JB_FARRAY);
	entries = (JEntry *) (w->at + sizeof(uint32));
	w->at = (char *) (entries + (is_object ? 2 * count : count));

	if (is_object)
		for (at = number + 1; n < count; at = next_token(w, at + 1))
		{
			write_value(w, at, &child);
			put_entry(entries, n++, child, &end);
		}
	at = number + 1;
	for (uint32 i = 0; i < count; i++)
	{
		at = write_value(w, is_object ? at + 1 : at, &child);
		put_entry(entries, n++, child, &end);
	}
	*entry = JENTRY_ISCONTAINER | (w->at - start);
	return at;
}

/* a scalar is the only element of an array that says so */
static void
write_scalar(Writer *w)
{
	uint32	   *header = (uint32 *) w->at;
	JEntry		entry;
	uint32		end = 0;

	*header = 1 | JB_FARRAY | JB_FSCALAR;
	w->at += sizeof(uint32) + sizeof(JEntry);
	write_value(w, 0, &entry);
	put_entry((JEntry *) (header + 1), 0, entry, &end);
}

static Jsonb *
write_all(const Reader *r)
{
	/* the header of the array is not among the tokens */
	Size		size = VARHDRSZ + sizeof(uint32) + r->size;
	char	   *start = palloc(size);
	Writer		w = {.tokens = r->tokens, .start = start, .at = start + VARHDRSZ, .end = start + size};
	JEntry		unused;

	if (r->tokens[0].kind == KIND_ARRAY || r->tokens[0].kind == KIND_OBJECT)
		write_container(&w, 0, &unused);
	else
		write_scalar(&w);
	Assert(w.at <= w.end);
	SET_VARSIZE(start, w.at - start);
	return (Jsonb *) start;
}

/* of a text in the database's encoding; NULL: the server has to read it */
static Jsonb *
read_all(const char *text, int length)
{
	Reader		r;
	Jsonb	   *result = NULL;

	r.at = text;
	r.end = text + length;
	r.depth = r.ntokens = 0;
	r.size = 0;
	r.decoded = NULL;
	r.tokens = r.at_hand;
	r.room = TOKENS_AT_HAND;
	if (read_value(&r) && r.at == r.end)
		result = write_all(&r);
	if (r.tokens != r.at_hand)
		pfree(r.tokens);
	return result;
}

Datum
jsonb_wire_recv(PG_FUNCTION_ARGS)
{
	StringInfo	buf = (StringInfo) PG_GETARG_POINTER(0);
	int			length = buf->len - buf->cursor - 1;

	if (length >= 0 && length <= LONGEST_TEXT && buf->data[buf->cursor] == WIRE_VERSION)
	{
		char	   *sent = buf->data + buf->cursor + 1;
		char	   *text = pg_client_to_server(sent, length);
		Jsonb	   *result = read_all(text, text == sent ? length : strlen(text));

		if (result != NULL)
		{
			buf->cursor = buf->len;
			PG_RETURN_JSONB_P(result);
		}
	}
	return jsonb_recv(fcinfo);
}

void
jsonb_wire_install(CopyFromState copy, TupleDesc desc)
{
	/* of a domain or an array over jsonb, or of text, it is another function */
	for (int i = 0; i < desc->natts; i++)
		if (TupleDescAttr(desc, i)->atttypid == JSONBOID && copy->in_functions[i].fn_oid == F_JSONB_RECV)
			copy->in_functions[i].fn_addr = jsonb_wire_recv;
}
