// SPDX-License-Identifier: MIT

package replica

import (
	"bytes"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestVersionsSideBySide: nodes of two versions of the protocol that follow one another are members of one cluster
// while they are replaced one by one, and a node of a version too far away is refused.
//
// Promise: replica/versions-side-by-side
func TestVersionsSideBySide(t *testing.T) {
	c := newCluster(t, 3, Options{Election: 2 * time.Second, Forward: true, versions: versions{6, 6}})
	execAll(t, open(t, c.leader(), "db"), "CREATE TABLE t(x)")
	rows := 0
	use := func() {
		t.Helper()
		leader := c.leader()
		for _, n := range c.all() { // on the leader, and forwarded
			must(t, n.Do(t.Context(), "db", func(tx *sql.Tx) error {
				_, err := tx.Exec("INSERT INTO t VALUES(1)")
				return err
			}))
			rows++
		}
		for _, n := range c.all() {
			got := 0
			must(t, n.Do(t.Context(), "db", func(tx *sql.Tx) error { return tx.QueryRow("SELECT count(*) FROM t").Scan(&got) }))
			if got != rows {
				t.Errorf("%s: %d rows of %d", n.ID(), got, rows)
			}
		}
		caughtUp(t, leader, "db", c.followers()...)
	}
	use()
	for _, v := range []versions{{6, 7}, {7, 8}} {
		c.base.versions = v
		for _, id := range []string{"a", "b", "c"} {
			c.stop(id)
			c.start(id)
			use()
		}
		want := fmt.Sprint(v.newest)
		until(t, "all members speak the newest version", func() bool {
			var all []string
			for _, m := range c.leader().Status().Members {
				all = append(all, fmt.Sprint(m.Version))
			}
			return strings.Join(all, " ") == strings.Join([]string{want, want, want}, " ")
		})
	}
	c.judge()
	n := c.followers()[0]
	h := n.wire.hello(peer{id: n.ID()}, kindRaft)
	h.Version, h.Newest, h.From = 6, 6, "x"
	if err := n.wire.judge(&h); err == nil || !strings.Contains(err.Error(), "speaks versions 6 to 6 of the protocol, and this node 7 to 8") {
		t.Errorf("a hello of version 6 to a node of 7 and 8: %v", err)
	}
	if err := n.wire.expected(peer{id: "a"}, &welcome{ID: "a"}); err == nil || !strings.Contains(err.Error(), "version 6") {
		t.Errorf("a welcome of version 6 to a node of 7 and 8: %v", err)
	}
}

// TestWireFormats: the messages and the operations of version 6 are what they were. What fails here is a new
// version: add it to spoken, use it when the connection, or every member, speaks it, and record its messages as well.
//
// Promise: replica/versions-side-by-side
func TestWireFormats(t *testing.T) {
	var out bytes.Buffer
	message := func(name string, v any) {
		p, err := json.Marshal(v)
		must(t, err)
		fmt.Fprintf(&out, "%s %s\n", name, p)
	}
	operation := func(name string, kind byte, rest []byte) {
		fmt.Fprintf(&out, "%s %s\n", name, hex.EncodeToString(appendOp(nil, kind, proposalID{1, 2}, rest)))
	}
	message("hello", hello{Version: 6, Kind: kindRaft, Cluster: 1, From: "a", Address: "h:1", Directory: 2, Last: 3, To: "b", ToDirectory: 4})
	message("welcome", welcome{ID: "b", Cluster: 1, Directory: 4, Known: memberDirectory{Directory: 2, Place: 5}})
	message("refusal", welcome{Error: "no"})
	for _, kind := range []string{askIndex, askCheck, askSum, askApplied} {
		message("request", request{Kind: kind, Database: 1, Check: proposalID{2, 3}})
	}
	message("answer", answer{Error: "no", Index: 1, Position: Position{Term: 2, Index: 3, Seq: 4, Sum: 5}, Sum: 6, Check: proposalID{7, 8}, Pending: true, Begun: true})
	var values []forwardValue
	for _, v := range []any{nil, int64(-1), 1.5, true, []byte{0}, "text", time.Unix(1, 0).UTC()} {
		p, err := packValue(v)
		must(t, err)
		values = append(values, p)
	}
	for _, op := range []string{forwardExec, forwardQuery, forwardBegin, forwardCommit, forwardRollback} {
		message("forward", forwardRequest{Op: op, Database: "d", Query: []byte("q"), Args: values, ReadOnly: true, Isolation: 1})
	}
	message("forwarded", forwardAnswer{LastID: 1, Changes: 2, Columns: [][]byte{{'c'}}, Types: []string{"INT"}, Rows: [][]forwardValue{values}, More: true,
		Fault: &forwardFault{Text: "no", Is: []string{"done"}, Code: 1, Leader: &NotLeaderError{Leader: "a", Address: "h:1"}, Broken: "d", Large: &TooLargeError{}}})
	message("fetch", fetchRequest{Database: 1, Seq: 2})
	message("fetched", fetchAnswer{Error: "no", Deleted: true, Position: Position{Term: 2, Index: 3, Seq: 4, Sum: 5}, PageSize: 512, Pages: 6})
	txn := &txn{db: 1, seq: 2, before: 3, after: 4, pageSize: 512, pages: 5, pgnos: []uint32{1, 5}, changes: [][]byte{{0, 1, 'x'}, {8, 1, 'y'}}}
	operation("transaction", opTxn, txn.encode())
	for _, kind := range []byte{opCluster, opMember, opCreate, opDelete, opPart, opSum, opWhole} {
		operation("operation", kind, []byte("rest"))
	}
	name := filepath.Join("testdata", "wire-6.txt")
	want, err := os.ReadFile(name)
	must(t, err)
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%s differs:\n%s", name, out.Bytes())
	}
}
