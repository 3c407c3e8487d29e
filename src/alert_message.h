/*
 * alert_message.h
 *		What a channel is sent, in the form that its receiver expects.
 */
#ifndef INCLOAD_ALERT_MESSAGE_H
#define INCLOAD_ALERT_MESSAGE_H

#include "postgres.h"

#include "http.h"

/* Channel: one that something is to be sent by */
typedef struct Channel
{
	int64		id;
	char	   *name;
	char	   *url;
	char	   *format;
	int			min_rank;		/* 1 info, 2 ticket, 3 page */
	int			timeout_ms;
	int			connect_timeout_ms;
	int			group_interval_ms;
	int			resend_ms;
	int			give_up_ms;
	char	   *labels;			/* jsonb text */
	char	   *ca_file;
	char	   *user;
	char	   *password;
	List	   *headers;		/* of char *, those that are the same each time */
} Channel;

/* by their numbers; inside a transaction */
extern List *alert_channels(void);

extern bool channel_is_alertmanager(const Channel *channel);

/*
 * A request with what these rows of the outbox (an array's text) say; "key" is the same
 * whenever they are sent.
 */
extern void alert_message(HttpRequest *request, const Channel *channel, const char *outbox_ids, const char *key);

/* for an Alertmanager: what these events (likewise) say, by what is so now */
extern void alert_state(HttpRequest *request, const Channel *channel, const char *event_ids);

#endif							/* INCLOAD_ALERT_MESSAGE_H */
