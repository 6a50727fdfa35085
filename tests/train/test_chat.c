// SPDX-License-Identifier: Apache-2.0
/* Chats: the texts of three families' templates, which special tokens choose among them, and the
 * mistakes of a file. */
#include "../data/bpe_json.h"
#include "tests/check.h"
#include "train/chat_prompt.h"
#include <stdlib.h>

static const char talk[] = "[{\"role\": \"system\", \"content\": \"Be brief.\"},\n"
                           " {\"content\": \" Who?\\n\", \"role\": \"user\"},\n"
                           " {\"role\": \"assistant\", \"content\": \"I.\"},\n"
                           " {\"role\": \"user\", \"content\": \"\\u00dc?\"}]";

static char *said_by(tsr_diags *diags) {
  char *text = NULL;
  size_t length = 0;
  FILE *stream = open_memstream(&text, &length);
  tsr_diags_print(diags, stream);
  fclose(stream);
  return text;
}

static tsr_chat parse(tsr_arena *arena, const char *text) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_chat chat;
  if (!tsr_chat_parse(arena, "chat.json", text, strlen(text), &chat, diags)) {
    tsr_diags_print(diags, stderr);
    abort();
  }
  return chat;
}

/* ---- texts ---- */

static void check_text(const char *json, tsr_chat_format format, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  tsr_chat chat = parse(arena, json);
  tsr_text text = {0};
  CHECK(tsr_chat_render(&chat, format, &text, tsr_diags_new(arena)));
  CHECK_STR(text.data, want);
  tsr_text_free(&text);
  tsr_arena_free(arena);
}

static void test_texts(void) {
  check_text(
      talk, TSR_CHAT_ML,
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Who?\n<|im_end|>\n"
      "<|im_start|>assistant\nI.<|im_end|>\n<|im_start|>user\nÜ?<|im_end|>\n"
      "<|im_start|>assistant\n");
  check_text(
      talk, TSR_CHAT_LLAMA3,
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
      "<|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\nI.<|eot_id|>"
      "<|start_header_id|>user<|end_header_id|>\n\nÜ?<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n");
  check_text(talk, TSR_CHAT_MISTRAL, "<s>[INST] Who?\n[/INST]I.</s>[INST]Be brief.\n\nÜ?[/INST]");
  check_text("[{\"role\":\"user\",\"content\":\"a\"}]", TSR_CHAT_MISTRAL, "<s>[INST]a[/INST]");
  check_text(
      "[{\"role\":\"user\",\"content\":\" \"}]", TSR_CHAT_LLAMA3,
      "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

/* ---- tokens ---- */

/* Bytes are their own tokens; these follow, from 256 on. */
static tsr_tokenizer tokenizer_with(tsr_arena *arena, const char *const *special, int count) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_text added = {0};
  tsr_bpe *bpe;
  for (int i = 0; i < count; i++)
    tsr_text_add(
        &added,
        "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false}",
        i ? "," : "", 256 + i, special[i]);
  if (!bpe_json_parse(arena, &(bpe_json){.added = added.data}, &bpe, diags)) {
    tsr_diags_print(diags, stderr);
    abort();
  }
  tsr_text_free(&added);
  return tsr_tokenizer_bpe(bpe);
}

/* Special tokens are one token each, everything else its bytes. */
static void test_tokens(void) {
  static const char *const ml[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  static const int32_t want[] = {257, 'u', 's', 'e', 'r', '\n', 'h', 'i', 258, '\n', 257,
                                 'a', 's', 's', 'i', 's', 't',  'a', 'n', 't', '\n'};
  tsr_arena *arena = tsr_arena_new();
  tsr_tokenizer t = tokenizer_with(arena, ml, 3);
  tsr_chat chat = parse(arena, "[{\"role\":\"user\",\"content\":\"hi\"}]");
  const int32_t *tokens;
  int64_t count;
  int32_t stops[TSR_CHAT_STOPS_MAX];
  CHECK_INT(tsr_chat_format_of(&t), TSR_CHAT_ML);
  CHECK(tsr_chat_tokens(arena, &chat, &t, &tokens, &count, tsr_diags_new(arena)));
  CHECK_INT(count, sizeof want / sizeof *want);
  CHECK(!memcmp(tokens, want, sizeof want));
  CHECK_INT(tsr_chat_stops(&t, stops), 2);
  CHECK(stops[0] == 256 && stops[1] == 258);
  tsr_arena_free(arena);
}

static void test_formats(void) {
  static const char *const llama[] = {
      "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  static const char *const mistral[] = {"<s>", "</s>", "[INST]", "[/INST]"};
  static const char *const none[] = {"<|endoftext|>"};
  tsr_arena *arena = tsr_arena_new();
  int32_t stops[TSR_CHAT_STOPS_MAX];
  tsr_tokenizer a = tokenizer_with(arena, llama, 4), b = tokenizer_with(arena, mistral, 4),
                c = tokenizer_with(arena, none, 1), d = tsr_tokenizer_byte();
  CHECK_INT(tsr_chat_format_of(&a), TSR_CHAT_LLAMA3);
  CHECK_INT(tsr_chat_format_of(&b), TSR_CHAT_MISTRAL);
  CHECK_INT(tsr_chat_format_of(&c), TSR_CHAT_NONE);
  CHECK_INT(tsr_chat_format_of(&d), TSR_CHAT_NONE);
  CHECK(tsr_chat_stops(&a, stops) == 1 && stops[0] == 259);
  CHECK(tsr_chat_stops(&b, stops) == 1 && stops[0] == 257);
  CHECK_INT(tsr_chat_stops(&d, stops), 0);
  tsr_chat chat = parse(arena, talk);
  tsr_diags *diags = tsr_diags_new(arena);
  const int32_t *tokens;
  int64_t count;
  CHECK(!tsr_chat_tokens(arena, &chat, &d, &tokens, &count, diags));
  char *said = said_by(diags);
  CHECK_STR(
      said,
      "error: the tokenizer has no special tokens for a chat: neither <|im_start|> (ChatML) nor "
      "<|start_header_id|> (Llama 3) nor [INST] (Mistral)\n"
      "      = a model that was not trained on chats needs --prompt\n");
  free(said);
  tsr_arena_free(arena);
}

/* ---- mistakes ---- */

static void check_mistake(const char *json, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_chat chat;
  CHECK_AT(!tsr_chat_parse(arena, "chat.json", json, strlen(json), &chat, diags), "%s", json);
  char *said = said_by(diags);
  CHECK_AT(strstr(said, want), "%s\nsaid: %s", json, said);
  free(said);
  tsr_arena_free(arena);
}

static void test_mistakes(void) {
  check_mistake("{\"role\":\"user\"}", "a chat should be a list of messages");
  check_mistake("[", "chat.json");
  check_mistake("[]", "no messages: there is nothing for the assistant to answer");
  check_mistake("[7]", "message 1 should be an object with 'role' and 'content'");
  check_mistake("[{\"role\":\"user\"}]", "message 1: 'content' is missing");
  check_mistake("[{\"role\":\"user\",\"content\":7}]", "message 1: 'content' should be a string");
  check_mistake("[{\"content\":\"x\"}]", "message 1: 'role' is missing");
  check_mistake(
      "[{\"role\":\"usr\",\"content\":\"x\"}]",
      "message 1: there is no role 'usr', only system, user and assistant");
  check_mistake("[{\"role\":\"usr\",\"content\":\"x\"}]", "user");
  check_mistake(
      "[{\"role\":\"user\",\"content\":\"x\",\"name\":\"y\"}]",
      "message 1: there is no key 'name', only 'role' and 'content'");
  check_mistake(
      "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\",\"content\":\"x\"}]",
      "message 2 is the user's, but it is the assistant's turn");
  check_mistake(
      "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"system\",\"content\":\"x\"}]",
      "message 2 is the system's, but it is the assistant's turn");
  check_mistake(
      "[{\"role\":\"system\",\"content\":\"x\"}]",
      "the user does not have the last word: there is nothing for the assistant to answer");
  check_mistake(
      "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"x\"}]",
      "the user does not have the last word");
  check_mistake("[{\"role\":\"a\",\"content\":\"x\"},{\"role\":\"b\"}]", "message 2");
}

int main(void) {
  test_texts();
  test_tokens();
  test_formats();
  test_mistakes();
  return check_done("chat");
}
