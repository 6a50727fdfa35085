// SPDX-License-Identifier: Apache-2.0
#include "serve/responses.h"
#include "base/json.h"
#include "serve/logprobs_json.h"
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

tsr_response_head tsr_response_head_new(bool is_chat) {
  static atomic_ullong number;
  unsigned long long random = 0;
  tsr_response_head head = {.created = (int64_t)time(NULL)};
  if (getrandom(&random, sizeof random, 0) != sizeof random)
    random = (unsigned long long)head.created;
  snprintf(
      head.id, sizeof head.id, "%s-%016llx%04llx", is_chat ? "chatcmpl" : "cmpl", random,
      atomic_fetch_add(&number, 1) & 0xffff);
  return head;
}

static void
add_head(const tsr_serve_job *job, const tsr_response_head *head, bool is_event, tsr_text *text) {
  const char *object = !job->request.is_chat ? "text_completion"
                       : is_event            ? "chat.completion.chunk"
                                             : "chat.completion";
  tsr_text_add(
      text, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", head->id, object,
      (long long)head->created);
  tsr_json_add_text(text, job->model->name, strlen(job->model->name));
}

static void add_usage(const tsr_serve_job *job, tsr_text *text) {
  int64_t prompt = 0, drawn = 0;
  for (int i = 0; i < job->request.prompts_count; i++) prompt += job->request.prompts[i].count;
  for (int i = 0; i < job->choices_count; i++) drawn += job->choices[i].drawn;
  tsr_text_add(
      text, "\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld}",
      (long long)prompt, (long long)drawn, (long long)(prompt + drawn));
}

static const char *finish_text(tsr_finish finish) {
  return finish == TSR_FINISH_STOP     ? "\"stop\""
         : finish == TSR_FINISH_LENGTH ? "\"length\""
                                       : "null";
}

static void add_bytes(const tsr_text *from, size_t begin, size_t end, tsr_text *text) {
  tsr_json_add_text(text, from->data ? from->data + begin : "", end - begin);
}

/* What a choice says of its tokens [first, count), and how it ended. */
static void add_rest(
    const tsr_text_choice *c, bool prompt, int64_t first, int64_t count, bool ends,
    tsr_text *text) {
  const tsr_request *r = &c->job->request;
  tsr_text_add(text, ",\"logprobs\":");
  bool is_whole = ends && !first;
  if (r->wants_logprobs && (prompt || is_whole || count > first))
    tsr_logprobs_add(c, prompt, first, count, text);
  else tsr_text_add(text, "null");
  if (r->returns_ids) {
    tsr_text_add(text, ",\"token_ids\":");
    tsr_text_choice_add_ids(c, first, count, text);
  }
  tsr_text_add(
      text, ",\"finish_reason\":%s}", ends ? finish_text(c->finish) : finish_text(TSR_FINISH_NONE));
}

/* A completion's text, behind its prompt where that is echoed. */
static void add_completion_text(
    const tsr_text_choice *c, bool prompt, size_t begin, size_t end, tsr_text *text) {
  tsr_text shown = {0};
  if (prompt && c->prompt_text.data)
    tsr_text_add_bytes(&shown, c->prompt_text.data, c->prompt_text.length);
  if (end > begin) tsr_text_add_bytes(&shown, c->stream.text.data + begin, end - begin);
  tsr_text_add(text, "\"text\":");
  add_bytes(&shown, 0, shown.length, text);
  tsr_text_free(&shown);
}

static void add_choice(const tsr_text_choice *c, int index, tsr_text *text) {
  const tsr_request *r = &c->job->request;
  int64_t records = tsr_text_choice_records(c);
  tsr_text_add(text, "%s{\"index\":%d,", index ? "," : "", index);
  if (r->is_chat) {
    tsr_text_add(text, "\"message\":{\"role\":\"assistant\",\"content\":");
    add_bytes(&c->stream.text, 0, c->stream.text.length, text);
    tsr_text_add(text, ",\"refusal\":null}");
  } else {
    add_completion_text(c, r->echoes, 0, c->stream.text.length, text);
  }
  add_rest(c, r->echoes && r->wants_logprobs, 0, records, true, text);
}

void tsr_response_add_whole(
    const tsr_serve_job *job, const tsr_response_head *head, tsr_text *text) {
  add_head(job, head, false, text);
  tsr_text_add(text, ",\"choices\":[");
  for (int i = 0; i < job->choices_count; i++) add_choice(&job->choices[i], i, text);
  tsr_text_add(text, "],");
  add_usage(job, text);
  tsr_text_add(text, "}");
}

/* ---- streams ---- */

static void
begin_event(const tsr_serve_job *job, const tsr_response_head *head, int index, tsr_text *text) {
  tsr_text_add(text, "data: ");
  add_head(job, head, true, text);
  tsr_text_add(text, ",\"choices\":[{\"index\":%d,", index);
}

static void end_event(const tsr_serve_job *job, tsr_text *text) {
  tsr_text_add(text, "]%s}\n\n", job->request.includes_usage ? ",\"usage\":null" : "");
}

/* Tokens that begin in the text that is final; at the end all. */
static int64_t final_records(const tsr_text_choice *c) {
  int64_t count = tsr_text_choice_records(c);
  if (c->finish) return count;
  if (!c->drawn) return 0;
  while (count > c->records_count - c->drawn && count > 0 &&
         c->records[count - 1].begin >= c->stream.final_length)
    count--;
  return count;
}

static void add_event(
    const tsr_text_choice *c, const tsr_response_head *head, int index, tsr_sent *sent,
    tsr_text *text) {
  const tsr_request *r = &c->job->request;
  bool first = !sent->has_begun, ends = c->finish != TSR_FINISH_NONE;
  int64_t records = final_records(c);
  size_t final_length = c->stream.final_length;
  if (first && r->is_chat) {
    begin_event(c->job, head, index, text);
    tsr_text_add(
        text, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
              "\"finish_reason\":null}");
    end_event(c->job, text);
  }
  sent->has_begun = true;
  begin_event(c->job, head, index, text);
  if (!r->is_chat) {
    add_completion_text(c, first && r->echoes, sent->text, final_length, text);
  } else if (final_length > sent->text) {
    tsr_text_add(text, "\"delta\":{\"content\":");
    add_bytes(&c->stream.text, sent->text, final_length, text);
    tsr_text_add(text, "}");
  } else {
    tsr_text_add(text, "\"delta\":{}");
  }
  bool prompt = first && r->echoes && r->wants_logprobs;
  add_rest(c, prompt, sent->records, records, ends, text);
  end_event(c->job, text);
  *sent = (tsr_sent){true, ends, final_length, records};
}

void tsr_response_add_events(
    const tsr_serve_job *job, const tsr_response_head *head, tsr_sent *sent, tsr_text *text) {
  for (int i = 0; i < job->choices_count; i++) {
    const tsr_text_choice *c = &job->choices[i];
    bool news = c->finish || c->stream.final_length > sent[i].text;
    if (!sent[i].has_finished && news) add_event(c, head, i, &sent[i], text);
  }
}

void tsr_response_add_end(const tsr_serve_job *job, const tsr_response_head *head, tsr_text *text) {
  if (job->request.includes_usage) {
    tsr_text_add(text, "data: ");
    add_head(job, head, true, text);
    tsr_text_add(text, ",\"choices\":[],");
    add_usage(job, text);
    tsr_text_add(text, "}\n\n");
  }
  tsr_text_add(text, "data: [DONE]\n\n");
}

/* ---- other answers ---- */

void tsr_response_add_model(const tsr_served_model *model, tsr_text *text) {
  tsr_text_add(text, "{\"id\":");
  tsr_json_add_text(text, model->name, strlen(model->name));
  tsr_text_add(
      text,
      ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"tessera-train\","
      "\"max_model_len\":%lld}",
      (long long)model->created, (long long)model->context);
}

void tsr_response_add_models(const tsr_served_model *model, tsr_text *text) {
  tsr_text_add(text, "{\"object\":\"list\",\"data\":[");
  tsr_response_add_model(model, text);
  tsr_text_add(text, "]}");
}

void tsr_response_add_tokens(
    const tsr_served_model *model, const tsr_prompt *tokens, tsr_text *text) {
  tsr_text_add(
      text, "{\"count\":%lld,\"max_model_len\":%lld,\"tokens\":[", (long long)tokens->count,
      (long long)model->context);
  for (int64_t i = 0; i < tokens->count; i++)
    tsr_text_add(text, "%s%d", i ? "," : "", tokens->tokens[i]);
  tsr_text_add(text, "]}");
}

void tsr_response_add_text(
    const tsr_served_model *model, const tsr_prompt *tokens, tsr_text *text) {
  tsr_text made = {0};
  tsr_tokenizer_decode(model->tokenizer, tokens->tokens, tokens->count, &made);
  tsr_text_add(text, "{\"prompt\":");
  add_bytes(&made, 0, made.length, text);
  tsr_text_add(text, "}");
  tsr_text_free(&made);
}

bool tsr_response_find_failure(const tsr_serve_job *job, tsr_api_error *ret_error) {
  for (int i = 0; i < job->choices_count; i++) {
    if (job->choices[i].finish == TSR_FINISH_SHUTDOWN)
      return !tsr_api_fail(ret_error, job->arena, 503, NULL, "server_ends", "The server ends");
    if (job->choices[i].finish == TSR_FINISH_ERROR)
      return !tsr_api_fail(
          ret_error, job->arena, 500, NULL, "no_numbers",
          "The model gave no finite number for a token of this request");
  }
  return false;
}
