// SPDX-License-Identifier: MIT

// Package probe holds what feature detection needs and nobody else should:
// probes whose conclusive answers are cached, and the parsing of kernel
// versions for messages and tests.
package probe
