// SPDX-License-Identifier: MIT

package reactor

// waiters are goroutines that wait for slots to be released. Releasing must be
// possible under any lock, so it only leaves a token.
type token chan struct{}

func newToken() token { return make(token, 1) }

// put leaves the token, if it is not there already.
func (t token) put() {
	select {
	case t <- struct{}{}:
	default:
	}
}
