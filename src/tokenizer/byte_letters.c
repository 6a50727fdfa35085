// SPDX-License-Identifier: Apache-2.0
/* The letters that stand for bytes in byte-level vocabularies. */
#include "base/text.h"
#include "base/utf8.h"
#include "tokenizer/internal.h"
#include <string.h>

/* A vocabulary writes bytes as printable letters (GPT-2's bytes_to_unicode): those that are letters
 * in Latin-1 as themselves, the others in their order as U+0100 and up. */
static bool is_itself(uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte < 256);
}

static int byte_of(uint32_t code) {
  if (code < 256) return is_itself(code) ? (int)code : -1;
  if (code < 256 + 33) return (int)code - 256;            /* 0 … 32 */
  if (code < 256 + 33 + 34) return (int)code - 289 + 127; /* 127 … 160 */
  return code == 256 + 33 + 34 ? 173 : -1;
}

int tsr_byte_letter(unsigned char byte, char ret_letter[4]) {
  uint32_t code = is_itself(byte) ? byte
                  : byte < 33     ? 256u + byte
                  : byte == 173   ? 323
                                  : byte + 162u;
  return tsr_utf8_put(code, ret_letter);
}

bool tsr_byte_letters_unmap(const char *text, tsr_text *bytes) {
  bytes->length = 0;
  for (size_t length = strlen(text); length;) {
    uint32_t code;
    int count = tsr_utf8_next(text, length, &code);
    int byte = count ? byte_of(code) : -1;
    if (byte < 0) return false;
    tsr_text_add_bytes(bytes, &(char){(char)byte}, 1);
    text += count;
    length -= (size_t)count;
  }
  return bytes->length > 0;
}
