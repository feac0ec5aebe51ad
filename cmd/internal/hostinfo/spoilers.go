// SPDX-License-Identifier: MIT

package hostinfo

import "time"

// busyWindow is how long the processors are watched for what else uses them.
const busyWindow = 300 * time.Millisecond

// maxBusy is the share of all processors that others may use before it shows in results.
const maxBusy = 0.05

// tooBusy is the share from which on others take part in every number.
const tooBusy = 0.25

// Spoilers says what on this machine makes results unsteady or smaller than they need be, in
// sentences for the user: other programs that run, the processor's governor, limits of a container.
// It watches the machine for 0.3 seconds, in which the caller should do nothing.
func Spoilers() []string { return spoilers() }
