// SPDX-License-Identifier: MIT

package ufiletest

import "testing"

func TestOS(t *testing.T) { Run(t, OS) }
