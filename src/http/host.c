// SPDX-License-Identifier: Apache-2.0
#include "http/host.h"
#include <string.h>
#include <strings.h>

/* Of the first `length` bytes; 127.0.0.1.example.com is no address. */
static bool is_loopback(const char *host, size_t length) {
  if (length == 9 && !strncasecmp(host, "localhost", length)) return true;
  if (length == 3 && !strncmp(host, "::1", length)) return true;
  return length >= 4 && !strncmp(host, "127.", 4) && strspn(host, "0123456789.") >= length;
}

bool tsr_host_is_loopback(const char *host) { return is_loopback(host, strlen(host)); }

bool tsr_host_header_is_loopback(const char *value) {
  if (!value) return false;
  bool brackets = value[0] == '[';
  const char *host = value + brackets;
  size_t length = strcspn(host, brackets ? "]" : ":");
  const char *rest = host + length;
  if (brackets) {
    if (*rest != ']') return false;
    rest++;
  }
  bool has_port = *rest == ':' && rest[1 + strspn(rest + 1, "0123456789")] == 0;
  return (!*rest || has_port) && is_loopback(host, length);
}
