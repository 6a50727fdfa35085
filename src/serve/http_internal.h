// SPDX-License-Identifier: Apache-2.0
/* What the files of the HTTP server share. */
#ifndef TSR_SERVE_HTTP_INTERNAL_H
#define TSR_SERVE_HTTP_INTERNAL_H
#include "http/daemon.h"
#include "serve/http_server.h"
#include "serve/responses.h"

struct tsr_http_server {
  tsr_http_settings settings;
  const tsr_served_model *model;
  tsr_scheduler *scheduler;
  tsr_metrics *metrics;
  tsr_http_daemon *daemon;
};

static inline tsr_http_server *tsr_http_server_of(const tsr_exchange *e) { return e->context; }

/* ---- http_answer.c ---- */

/* Takes the text's memory. */
enum MHD_Result
tsr_http_answer(tsr_exchange *exchange, int status, const char *content_type, tsr_text *text);
enum MHD_Result tsr_http_answer_json(tsr_exchange *exchange, tsr_text *text);
enum MHD_Result tsr_http_answer_error(tsr_exchange *exchange, const tsr_api_error *error);

/* ---- http_generation.c ---- */

enum MHD_Result tsr_http_generate(tsr_exchange *exchange, bool is_chat);

#endif
