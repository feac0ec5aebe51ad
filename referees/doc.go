// SPDX-License-Identifier: MIT

// Package referees holds tests that other projects wrote, and the devices that
// other tests need: file systems in user space and recording block devices.
//
// It is a module of its own because its dependencies are not those of the library.
package referees
