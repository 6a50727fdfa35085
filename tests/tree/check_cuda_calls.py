#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# No error of CUDA's runtime, cuBLASLt or NCCL is dropped: a call of a function that returns one is never a statement
# by itself, nor cast to void, but where ALLOWED says so, with the reason.
# usage: check_cuda_calls.py ROOT
import pathlib
import re
import sys

# function: why its result may be dropped
ALLOWED = {
    'cudaFree': 'memory is released at the end, or after a failure that has been reported',
    'cudaFreeHost': 'as cudaFree',
    'cudaEventDestroy': 'as cudaFree',
    'cudaStreamDestroy': 'as cudaFree',
    'cudaGraphExecDestroy': 'as cudaFree',
    'cublasLtDestroy': 'as cudaFree',
    'cublasLtMatmulDescDestroy': 'as cudaFree',
    'cublasLtMatrixLayoutDestroy': 'as cudaFree',
    'cublasLtMatmulPreferenceDestroy': 'as cudaFree',
    'ncclCommAbort': 'the failure has been reported',
    'ncclCommDestroy': 'the communicator was finalized, which is checked',
    'cudaGetLastError': 'it clears an error that has been reported',
}
# In kernels: launches return no error, so device.c reads cudaGetLastError behind every task and function of
# kernels.h; it returns the errors of these, too.
OF_KERNELS = {'cudaMemsetAsync', 'cudaMemcpyAsync', 'cudaFuncSetAttribute'}

CALL = re.compile(r'\b(cuda[A-Z]\w*|cublasLt[A-Z]\w*|(?:\w+(?:->|\.))*nccl(?:\.|->)?[A-Z]\w*)\s*\(')


def without_text(source):
    """Comments and strings become blanks, so that lines stay where they are."""
    blank = lambda m: re.sub(r'[^\n]', ' ', m.group())
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, source, flags=re.S)


def end_of(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == '(') - (text[i] == ')')
        if not depth:
            return i + 1
    return len(text)


def is_dropped(text, begin, end):
    before = text[:begin].rstrip()
    after = text[end:].lstrip()[:1]
    if before.endswith('(void)'):
        return True
    if after not in (';', ','):
        return False
    if before.endswith(')'):
        return is_condition(before)
    return before[-1:] in (';', '{', '}') or re.search(r'(\belse|\bdo|\bcase [^:?;]*:|\bdefault:)$', before) is not None


def is_condition(text):
    """Whether the parenthesis that ends the text is that of an if or a loop."""
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        depth += (text[i] == ')') - (text[i] == '(')
        if not depth:
            return re.search(r'\b(if|while|for)\s*$', text[:i]) is not None
    return False


def main(root):
    files = sorted(p for folder in ('src/device/cuda', 'kernels/cuda') for p in (root / folder).iterdir()
                   if p.suffix in ('.c', '.h', '.cu', '.cuh'))
    calls, wrong, used = 0, [], set()
    for path in files:
        text = without_text(path.read_text())
        for m in CALL.finditer(text):
            name = re.sub(r'^.*nccl(?:\.|->)', 'nccl', m.group(1))
            begin = m.start()
            calls += 1
            if not is_dropped(text, begin, end_of(text, m.end() - 1)):
                continue
            used.add(name)
            if name in ALLOWED or (path.suffix in ('.cu', '.cuh') and name in OF_KERNELS):
                continue
            line = text.count('\n', 0, begin) + 1
            wrong.append(f'{path.relative_to(root)}:{line}: the error of {name} is dropped')
    wrong += [f'{name} is in the list of this test, and nothing drops its error' for name in ALLOWED if name not in used]
    print('\n'.join(wrong))
    print(f'{len(files)} files, {calls} calls, {len(wrong)} wrong')
    return bool(wrong) or calls < 80


sys.exit(main(pathlib.Path(sys.argv[1])))
