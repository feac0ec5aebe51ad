// SPDX-License-Identifier: MIT

package ringtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// OwnHost returns an address of the loopback network that hardly any other program uses. Ports of
// 127.0.0.1 may be taken by any connection.
func OwnHost() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), 1+rand.IntN(250), 1+rand.IntN(250))
}

// FreeAddresses returns different TCP addresses of a host that were free a moment ago, for
// programs that have to know each other's addresses before they listen.
func FreeAddresses(t testing.TB, host string, count int) (all []string) {
	t.Helper()
	for range count {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}
