// SPDX-License-Identifier: Apache-2.0
/* Switches between stacks for the emulator's fibers. swapcontext saves the signal mask, which is a
 * system call a switch, and the address sanitizer clears a whole stack's shadow in it; on x86-64
 * the registers that a call preserves are all that is saved. */
#ifndef TSR_TESTS_CUDA_STACK_SWITCH_H
#define TSR_TESTS_CUDA_STACK_SWITCH_H
#include <cstddef>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulator {

#if defined(__x86_64__)

struct stack_context {
  void *pointer;
};

/* System V ABI for x86-64, 3.2.1: rbx, rbp and r12 to r15 belong to the caller. */
inline __attribute__((naked, noinline)) void switch_pointer(void **from, void *to) {
  (void)from, (void)to;
  asm("pushq %rbp\n\t"
      "pushq %rbx\n\t"
      "pushq %r12\n\t"
      "pushq %r13\n\t"
      "pushq %r14\n\t"
      "pushq %r15\n\t"
      "movq %rsp, (%rdi)\n\t"
      "movq %rsi, %rsp\n\t"
      "popq %r15\n\t"
      "popq %r14\n\t"
      "popq %r13\n\t"
      "popq %r12\n\t"
      "popq %rbx\n\t"
      "popq %rbp\n\t"
      "ret");
}

inline void switch_stack(stack_context *from, const stack_context *to) {
  switch_pointer(&from->pointer, to->pointer);
}

/* `main` begins at the first switch, as if it were called, and must not return. The stack's end is
 * aligned to 16. */
inline void stack_begin(stack_context *c, char *stack, size_t bytes, void (*main)()) {
  enum { SAVED = 6, ABOVE = 2 }; /* registers; the address of main, and none that it returns to */
  void **frame = (void **)(void *)(stack + bytes) - SAVED - ABOVE;
  for (int i = 0; i < SAVED + ABOVE; i++) frame[i] = nullptr;
  frame[SAVED] = (void *)main;
  c->pointer = frame;
}

#else

struct stack_context {
  ucontext_t context;
};

inline void switch_stack(stack_context *from, const stack_context *to) {
  swapcontext(&from->context, &to->context);
}

inline void stack_begin(stack_context *c, char *stack, size_t bytes, void (*main)()) {
  getcontext(&c->context);
  c->context.uc_stack.ss_sp = stack;
  c->context.uc_stack.ss_size = bytes;
  c->context.uc_link = nullptr;
  makecontext(&c->context, main, 0);
}

#endif

} // namespace emulator

#endif
