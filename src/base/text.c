// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "base/utf8.h"
#include "base/memory.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(tsr_text *text, size_t extra) {
  size_t need = text->length + extra + 1;
  if (need <= text->capacity) return;
  size_t capacity = text->capacity ? text->capacity : 128;
  while (capacity < need) capacity *= 2;
  text->data = tsr_memory_grow(text->data, capacity);
  text->capacity = capacity;
}

void tsr_text_add_bytes(tsr_text *text, const void *bytes, size_t length) {
  reserve(text, length);
  memcpy(text->data + text->length, bytes, length);
  text->length += length;
  text->data[text->length] = 0;
}

void tsr_text_add(tsr_text *text, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  reserve(text, (size_t)length);
  vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
  va_end(again);
  text->length += (size_t)length;
}

void tsr_text_add_code_point(tsr_text *text, uint32_t code) {
  char bytes[TSR_UTF8_BYTES_MAX];
  tsr_text_add_bytes(text, bytes, (size_t)tsr_utf8_put(code, bytes));
}

void tsr_text_add_clean(tsr_text *text, const char *bytes, size_t length) {
  for (size_t at = 0; at < length;) {
    uint32_t code;
    int valid = tsr_utf8_next(bytes + at, length - at, &code);
    if (valid && code) tsr_text_add_bytes(text, bytes + at, (size_t)valid);
    else tsr_text_add(text, "\xef\xbf\xbd");
    at += valid ? (size_t)valid : 1;
  }
}

void tsr_text_add_shown(tsr_text *text, const char *bytes, size_t length) {
  for (size_t at = 0, used; at < length; at += used) {
    uint32_t code, byte = (unsigned char)bytes[at];
    int valid = tsr_utf8_next(bytes + at, length - at, &code);
    used = valid ? (size_t)valid : 1;
    if (!valid) code = byte;
    bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    if (!is_control || code == '\n' || code == '\t') tsr_text_add_bytes(text, bytes + at, used);
    else tsr_text_add(text, used == 1 ? "\\x%02x" : "\\u%04x", (unsigned)code);
  }
}

void tsr_text_free(tsr_text *text) {
  free(text->data);
  *text = (tsr_text){0};
}

enum { WORD_MAX = 64 };

static int min3(int a, int b, int c) { return a < b ? (a < c ? a : c) : (b < c ? b : c); }

/* Damerau-Levenshtein distance with adjacent swaps (optimal string alignment). */
static int distance(const char *a, const char *b) {
  int n = (int)strlen(a), m = (int)strlen(b);
  if (n >= WORD_MAX || m >= WORD_MAX) return WORD_MAX;
  int d[WORD_MAX][WORD_MAX];
  for (int i = 0; i <= n; i++) d[i][0] = i;
  for (int j = 0; j <= m; j++) d[0][j] = j;
  for (int i = 1; i <= n; i++)
    for (int j = 1; j <= m; j++) {
      int ai = tolower((unsigned char)a[i - 1]), bj = tolower((unsigned char)b[j - 1]);
      d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (ai != bj));
      if (i > 1 && j > 1 && ai == tolower((unsigned char)b[j - 2]) &&
          tolower((unsigned char)a[i - 2]) == bj && d[i - 2][j - 2] + 1 < d[i][j])
        d[i][j] = d[i - 2][j - 2] + 1;
    }
  return d[n][m];
}

const char *tsr_nearest(const char *word, const char *const *candidates, int count) {
  int limit = (int)strlen(word) / 3;
  if (limit < 1) limit = 1;
  if (limit > 3) limit = 3;
  const char *best = NULL;
  for (int i = 0; i < count; i++) {
    int d = distance(word, candidates[i]);
    if (d <= limit && (limit = d, !best || d < distance(word, best))) best = candidates[i];
  }
  return best;
}

tsr_short_text tsr_text_count(int64_t value) {
  tsr_short_text text;
  char digits[24], *out = text.text;
  int n = snprintf(digits, sizeof digits, "%lld", (long long)value), k = 0;
  for (int i = 0; i < n; i++) {
    out[k++] = digits[i];
    int left = n - 1 - i;
    if (left && left % 3 == 0 && digits[i] != '-') out[k++] = ',';
  }
  out[k] = 0;
  return text;
}

tsr_short_text tsr_text_bytes(int64_t bytes) {
  tsr_short_text text;
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = (double)bytes;
  int u = 0;
  while (value >= 1024 && u < 5) value /= 1024, u++;
  snprintf(text.text, sizeof text.text, u ? "%.1f %s" : "%.0f %s", value, units[u]);
  return text;
}

tsr_short_text tsr_text_seconds(double seconds) {
  static const double nothing = 1e-12; /* what sums of seconds are off by */
  static const char *const units[] = {"s", "ms", "us"};
  tsr_short_text text;
  int unit = 0;
  if (seconds < nothing) seconds = 0;
  for (; unit < 2 && seconds < 0.9995; unit++) seconds *= 1000;
  if (seconds == 0) unit = 0;
  snprintf(
      text.text, sizeof text.text, "%.*f %s",
      seconds >= 99.95   ? 0
      : seconds >= 9.995 ? 1
                         : 2,
      seconds, units[unit]);
  return text;
}

tsr_short_text tsr_text_duration(double seconds) {
  tsr_short_text text = {"--:--"};
  if (!(seconds >= 0 && seconds < 1e9)) return text;
  long long s = (long long)(seconds + 0.5), days = s / 86400;
  int hours = (int)(s / 3600 % 24), minutes = (int)(s / 60 % 60), rest = (int)(s % 60);
  size_t room = sizeof text.text;
  if (days) snprintf(text.text, room, "%lldd %02d:%02d:%02d", days, hours, minutes, rest);
  else if (hours) snprintf(text.text, room, "%d:%02d:%02d", hours, minutes, rest);
  else snprintf(text.text, room, "%d:%02d", minutes, rest);
  return text;
}
