// SPDX-License-Identifier: Apache-2.0
#include "serve/request.h"
#include "serve/prompts.h"
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

/* ---- the object ---- */

/* The parser is the whole process's (base/json.h). */
static bool parse(
    tsr_arena *arena, tsr_arena *json, const char *body, size_t length, tsr_fields *ret_fields,
    tsr_api_error *ret_error) {
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
  tsr_diags *diags = tsr_diags_new(json);
  cJSON *object;
  *ret_error = (tsr_api_error){0};
  pthread_mutex_lock(&one_at_a_time);
  bool ok = tsr_json_parse(json, "the body", body, length, &object, diags);
  pthread_mutex_unlock(&one_at_a_time);
  if (!ok) {
    tsr_location at = tsr_diags_first_location(diags);
    return tsr_api_fail(
        ret_error, arena, 400, NULL, NULL, "The body is no JSON: line %d, column %d: %s", at.line,
        at.col, tsr_diags_first_error(diags));
  }
  if (!cJSON_IsObject(object))
    return tsr_api_fail(ret_error, arena, 400, NULL, NULL, "The body should be a JSON object");
  *ret_fields = (tsr_fields){arena, object, ret_error};
  return true;
}

static bool check_model(const tsr_fields *f, const tsr_served_model *model) {
  const char *name = model->name;
  if (!tsr_field_text(f, "model", &name)) return false;
  if (!strcmp(name, model->name)) return true;
  return tsr_api_fail(
      f->error, f->arena, 404, "model", "model_not_found",
      "The model '%s' does not exist; this server has '%s'", name, model->name);
}

/* ---- keys that both kinds have ---- */

static bool read_sampling(const tsr_fields *f, tsr_sampling *s) {
  enum { LARGE = 1 << 30 };
  const int64_t exact = 1LL << 53;
  int64_t seed;
  *s = (tsr_sampling){.repetition_penalty = 1, .temperature = 1, .top_p = 1};
  if (getrandom(&s->seed, sizeof s->seed, 0) != sizeof s->seed) s->seed = 0;
  seed = (int64_t)s->seed;
  bool ok = tsr_field_number(f, "temperature", 0, 100, &s->temperature) &&
            tsr_field_number(f, "top_p", 0, 1, &s->top_p) &&
            tsr_field_int(f, "top_k", -1, LARGE, &s->top_k) &&
            tsr_field_number(f, "repetition_penalty", 0.01, 100, &s->repetition_penalty) &&
            tsr_field_number(f, "frequency_penalty", -2, 2, &s->frequency_penalty) &&
            tsr_field_number(f, "presence_penalty", -2, 2, &s->presence_penalty) &&
            tsr_field_int(f, "seed", -exact, exact, &seed);
  s->seed = (uint64_t)seed;
  return ok;
}

static bool read_biases(const tsr_fields *f, const tsr_served_model *model, tsr_sampling *s) {
  const cJSON *object = tsr_field(f, "logit_bias"), *item;
  if (!object) return true;
  if (!cJSON_IsObject(object)) return tsr_field_wrong(f, "logit_bias", "an object");
  tsr_logit_bias *biases =
      tsr_arena_array(f->arena, tsr_logit_bias, cJSON_GetArraySize(object) + 1);
  cJSON_ArrayForEach(item, object) {
    int used = 0, token = -1;
    double bias = cJSON_IsNumber(item) ? item->valuedouble : 1000;
    if (strlen(item->string) > 9 || sscanf(item->string, "%d%n", &token, &used) != 1 ||
        item->string[used] || token < 0 || token >= model->vocab_size)
      return tsr_api_fail(
          f->error, f->arena, 400, "logit_bias", NULL,
          "'logit_bias': '%.20s' is no token, which is a whole number below %lld", item->string,
          (long long)model->vocab_size);
    if (!(bias >= -100 && bias <= 100))
      return tsr_field_wrong(f, "logit_bias", "numbers from -100 to 100");
    biases[s->biases_count++] = (tsr_logit_bias){token, bias};
  }
  s->biases = biases;
  return true;
}

static bool add_stop(const tsr_fields *f, const cJSON *item, tsr_request *r) {
  enum { LENGTH_MAX = 1024 };
  const char *text = cJSON_IsString(item) ? item->valuestring : "";
  size_t length = strlen(text);
  if (!length || length > LENGTH_MAX)
    return tsr_field_wrong(f, "stop", "a string of 1 to 1024 bytes, or a list of such strings");
  r->stops[r->stops_count++] = (tsr_stop_string){tsr_arena_strdup(f->arena, text), length};
  return true;
}

static bool read_stops(const tsr_fields *f, tsr_request *r) {
  enum { STOPS_MAX = 16 };
  const cJSON *stop = tsr_field(f, "stop"), *item;
  r->stops = tsr_arena_array(f->arena, tsr_stop_string, STOPS_MAX);
  if (!stop) return true;
  if (!cJSON_IsArray(stop)) return add_stop(f, stop, r);
  if (cJSON_GetArraySize(stop) > STOPS_MAX)
    return tsr_field_wrong(f, "stop", "a list of at most 16 strings");
  cJSON_ArrayForEach(item, stop) if (!add_stop(f, item, r)) return false;
  return true;
}

static bool read_streaming(const tsr_fields *f, tsr_request *r) {
  const cJSON *options = tsr_field(f, "stream_options");
  if (!tsr_field_bool(f, "stream", &r->streams)) return false;
  if (!options) return true;
  if (!cJSON_IsObject(options)) return tsr_field_wrong(f, "stream_options", "an object");
  if (!r->streams)
    return tsr_api_fail(
        f->error, f->arena, 400, "stream_options", NULL, "'stream_options' goes with 'stream'");
  tsr_fields inner = {f->arena, options, f->error};
  return tsr_field_bool(&inner, "include_usage", &r->includes_usage);
}

static bool refuse(const tsr_fields *f, const char *key, const char *why) {
  return tsr_api_fail(f->error, f->arena, 400, key, "unsupported_parameter", "'%s': %s", key, why);
}

/* Formats of the answer that would have to be kept to. */
static bool check_format(const tsr_fields *f) {
  const cJSON *format = tsr_field(f, "response_format");
  if (!format) return true;
  if (!cJSON_IsObject(format)) return tsr_field_wrong(f, "response_format", "an object");
  tsr_fields inner = {f->arena, format, f->error};
  const char *type = "text";
  if (!tsr_field_text(&inner, "type", &type)) return false;
  return !strcmp(type, "text") ||
         refuse(
             f, "response_format",
             tsr_arena_printf(f->arena, "this server gives 'text', not '%.40s'", type));
}

static bool read_choices(const tsr_fields *f, const tsr_served_model *model, tsr_request *r) {
  int64_t n = 1, best;
  if (!tsr_field_int(f, "n", 1, TSR_REQUEST_CHOICES_MAX, &n)) return false;
  best = n;
  if (!tsr_field_int(f, "best_of", 1, 1 << 20, &best)) return false;
  if (best != n) return refuse(f, "best_of", "all choices are returned, so it must be 'n'");
  r->n = (int)n;
  int64_t texts = n * r->prompts_count;
  return texts <= model->texts_most ||
         tsr_api_fail(
             f->error, f->arena, 400, "n", NULL,
             "%lld choices (prompts times 'n') are more than the %lld of one request",
             (long long)texts, (long long)model->texts_most);
}

static bool read_max_tokens(
    const tsr_fields *f, const tsr_served_model *model, const char *key, int64_t least,
    int64_t *value) {
  const cJSON *item = tsr_field(f, key);
  if (cJSON_IsNumber(item) && item->valuedouble > (double)model->context)
    return tsr_api_fail(
        f->error, f->arena, 400, key, "context_length_exceeded",
        "'%s' is more than this server's context, which is %lld tokens", key,
        (long long)model->context);
  return tsr_field_int(f, key, least, model->context, value);
}

/* `wanted` below 0: what the context leaves. */
static bool
fit(const tsr_fields *f, const tsr_served_model *model, int64_t wanted, tsr_request *r) {
  r->max_new_tokens = tsr_arena_array(f->arena, int64_t, r->prompts_count);
  for (int i = 0; i < r->prompts_count; i++) {
    int64_t count = r->prompts[i].count, left = model->context - count;
    if (!count)
      return tsr_api_fail(
          f->error, f->arena, 400, r->is_chat ? "messages" : "prompt", NULL,
          "A prompt is empty: it has nothing to continue");
    bool fits = left > 0 ? wanted <= left : left == 0 && wanted == 0;
    if (!fits)
      return tsr_api_fail(
          f->error, f->arena, 400, r->is_chat ? "messages" : "prompt", "context_length_exceeded",
          "This server's context is %lld tokens; the prompt has %lld, and %lld more are wanted",
          (long long)model->context, (long long)count, (long long)(wanted < 0 ? 1 : wanted));
    r->max_new_tokens[i] = wanted < 0 ? left : wanted;
  }
  return true;
}

/* ---- the two kinds ---- */

static bool read_completion(const tsr_fields *f, const tsr_served_model *model, tsr_request *r) {
  int64_t max_tokens = 16, top_logprobs = -1;
  bool adds_special = true;
  const char *suffix = "";
  bool ok = tsr_field_bool(f, "add_special_tokens", &adds_special) &&
            tsr_prompts_read(f, model, adds_special, r) &&
            read_max_tokens(f, model, "max_tokens", 0, &max_tokens) &&
            tsr_field_bool(f, "echo", &r->echoes) &&
            tsr_field_int(f, "logprobs", 0, TSR_REQUEST_TOP_LOGPROBS_MAX, &top_logprobs) &&
            tsr_field_text(f, "suffix", &suffix);
  if (ok && *suffix) ok = refuse(f, "suffix", "text is only continued, not filled in");
  r->wants_logprobs = top_logprobs >= 0;
  r->top_logprobs = top_logprobs > 0 ? (int)top_logprobs : 0;
  if (ok && !max_tokens && !r->echoes)
    ok = tsr_api_fail(
        f->error, f->arena, 400, "max_tokens", NULL, "'max_tokens' of 0 goes with 'echo'");
  return ok && fit(f, model, max_tokens, r);
}

/* What an assistant calls tools with is text of the model's own format. */
static bool read_tool_choice(const tsr_fields *f, bool *ret_has_tools) {
  const cJSON *choice = tsr_field(f, "tool_choice");
  *ret_has_tools = !choice || !cJSON_IsString(choice) || strcmp(choice->valuestring, "none") != 0;
  if (!choice || !*ret_has_tools) return true;
  return (cJSON_IsString(choice) && !strcmp(choice->valuestring, "auto")) ||
         refuse(f, "tool_choice", "this server knows 'none' and 'auto'");
}

static bool read_chat(
    const tsr_fields *f, const tsr_served_model *model, const char *body, size_t length,
    tsr_request *r) {
  int64_t max_tokens = -1, top_logprobs = -1;
  bool has_tools, adds_prompt = true;
  r->prompts = tsr_arena_array(f->arena, tsr_prompt, 1);
  r->prompts_count = 1;
  bool ok = read_tool_choice(f, &has_tools) &&
            tsr_field_bool(f, "add_generation_prompt", &adds_prompt) &&
            tsr_prompt_of_chat(f, model, body, length, has_tools, adds_prompt, r->prompts) &&
            read_max_tokens(f, model, "max_tokens", 1, &max_tokens) &&
            read_max_tokens(f, model, "max_completion_tokens", 1, &max_tokens) &&
            tsr_field_bool(f, "logprobs", &r->wants_logprobs) &&
            tsr_field_int(f, "top_logprobs", 0, TSR_REQUEST_TOP_LOGPROBS_MAX, &top_logprobs);
  if (ok && top_logprobs >= 0 && !r->wants_logprobs)
    ok = tsr_api_fail(
        f->error, f->arena, 400, "top_logprobs", NULL, "'top_logprobs' goes with 'logprobs'");
  r->top_logprobs = top_logprobs > 0 ? (int)top_logprobs : 0;
  return ok && fit(f, model, max_tokens, r);
}

bool tsr_request_read(
    tsr_arena *arena, const tsr_served_model *model, bool is_chat, const char *body, size_t length,
    tsr_request *r, tsr_api_error *ret_error) {
  tsr_arena *json = tsr_arena_new();
  tsr_fields f;
  *r = (tsr_request){.is_chat = is_chat, .n = 1};
  bool ok = parse(arena, json, body, length, &f, ret_error) && check_model(&f, model) &&
            check_format(&f) && read_sampling(&f, &r->sampling) &&
            read_biases(&f, model, &r->sampling) && read_stops(&f, r) && read_streaming(&f, r) &&
            tsr_field_bool(&f, "ignore_eos", &r->ignores_ends) &&
            tsr_field_bool(&f, "return_token_ids", &r->returns_ids) &&
            (is_chat ? read_chat(&f, model, body, length, r) : read_completion(&f, model, r)) &&
            read_choices(&f, model, r);
  tsr_arena_free(json);
  return ok;
}

bool tsr_request_read_tokenize(
    tsr_arena *arena, const tsr_served_model *model, const char *body, size_t length,
    tsr_prompt *ret_tokens, tsr_api_error *ret_error) {
  tsr_arena *json = tsr_arena_new();
  tsr_fields f;
  bool adds_special = true, adds_prompt = true;
  const char *prompt = NULL;
  bool ok = parse(arena, json, body, length, &f, ret_error) && check_model(&f, model) &&
            tsr_field_bool(&f, "add_special_tokens", &adds_special) &&
            tsr_field_bool(&f, "add_generation_prompt", &adds_prompt) &&
            tsr_field_text(&f, "prompt", &prompt);
  if (ok && !prompt && !tsr_field(&f, "messages"))
    ok = tsr_api_fail(
        ret_error, arena, 400, "prompt", "missing_required_parameter",
        "'prompt', a text, or 'messages', a conversation, is missing");
  if (ok && prompt) ok = tsr_prompt_of_text(&f, model, prompt, adds_special, ret_tokens, NULL);
  else if (ok) ok = tsr_prompt_of_chat(&f, model, body, length, true, adds_prompt, ret_tokens);
  tsr_arena_free(json);
  return ok;
}

bool tsr_request_read_detokenize(
    tsr_arena *arena, const tsr_served_model *model, const char *body, size_t length,
    tsr_prompt *ret_tokens, tsr_api_error *ret_error) {
  tsr_arena *json = tsr_arena_new();
  tsr_fields f;
  bool ok = parse(arena, json, body, length, &f, ret_error) && check_model(&f, model);
  const cJSON *tokens = ok ? tsr_field(&f, "tokens") : NULL;
  if (ok && !cJSON_IsArray(tokens)) ok = tsr_field_wrong(&f, "tokens", "a list of tokens");
  ok = ok && tsr_prompt_of_list(&f, model, "tokens", tokens, ret_tokens);
  tsr_arena_free(json);
  return ok;
}
