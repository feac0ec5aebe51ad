// SPDX-License-Identifier: MIT

package sqlitebench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Tests is the number of tests of the speed page.
const Tests = 16

// speedTest is one test of the page: some statements, and one that is repeated.
type speedTest struct {
	transaction bool
	first       []string
	times       int
	repeat      func(i int, r *rand.Rand) string
}

// speedTests are the tests of the page, in order. Each needs the tables of the tests before it.
var speedTests = [Tests]speedTest{
	{false, []string{createTable("t1")}, 1000, insert("t1", 100_000)},
	{true, []string{createTable("t2")}, 25_000, insert("t2", 500_000)},
	{true, []string{createTable("t3"), "CREATE INDEX i3 ON t3(c)"}, 25_000, insert("t3", 500_000)},
	{true, nil, 100, selectRange(1000)},
	{true, nil, 100, func(i int, _ *rand.Rand) string {
		return fmt.Sprintf("SELECT count(*), avg(b) FROM t2 WHERE c LIKE '%%%s%%'", words(i+1))
	}},
	{false, []string{"CREATE INDEX i2a ON t2(a)", "CREATE INDEX i2b ON t2(b)"}, 0, nil},
	{false, nil, 5000, selectRange(100)},
	{true, nil, 1000, func(i int, _ *rand.Rand) string {
		return fmt.Sprintf("UPDATE t1 SET b=b*2 WHERE a>=%d AND a<%d", i*10, i*10+10)
	}},
	{true, nil, 25_000, func(i int, r *rand.Rand) string {
		return fmt.Sprintf("UPDATE t2 SET b=%d WHERE a=%d", r.IntN(500_000), i+1)
	}},
	{true, nil, 25_000, func(i int, r *rand.Rand) string {
		return fmt.Sprintf("UPDATE t2 SET c='%s' WHERE a=%d", words(r.IntN(500_000)), i+1)
	}},
	{true, []string{"INSERT INTO t1 SELECT b,a,c FROM t2", "INSERT INTO t2 SELECT b,a,c FROM t1"}, 0, nil},
	{false, []string{"DELETE FROM t2 WHERE c LIKE '%fifty%'"}, 0, nil},
	{false, []string{"DELETE FROM t2 WHERE a>10 AND a<20000"}, 0, nil},
	{false, []string{"INSERT INTO t2 SELECT * FROM t1"}, 0, nil},
	{true, []string{"DELETE FROM t1"}, 3000, insert("t1", 100_000)},
	{false, []string{"DROP TABLE t1", "DROP TABLE t2"}, 0, nil},
}

func createTable(name string) string {
	return fmt.Sprintf("CREATE TABLE %s(a INTEGER, b INTEGER, c VARCHAR(100))", name)
}

// insert returns statements that insert rows numbered from 1.
func insert(table string, below int) func(int, *rand.Rand) string {
	return func(i int, r *rand.Rand) string {
		n := r.IntN(below)
		return fmt.Sprintf("INSERT INTO %s VALUES(%d,%d,'%s')", table, i+1, n, words(n))
	}
}

func selectRange(width int) func(int, *rand.Rand) string {
	return func(i int, _ *rand.Rand) string {
		return fmt.Sprintf("SELECT count(*), avg(b) FROM t2 WHERE b>=%d AND b<%d", i*100, i*100+width)
	}
}

// scaled returns the percentage of a number of repetitions, at least 1.
func scaled(n, percent int) int { return max(n*percent/100, 1) }

// statements returns the statements of a test. The same seed gives the same statements. scale is
// the percentage of the original number of repetitions.
func statements(test int, seed uint64, scale int) []string {
	t, random := speedTests[test], rand.New(rand.NewPCG(seed, uint64(test)))
	out := slices.Clone(t.first)
	if t.repeat != nil {
		for i := range scaled(t.times, scale) {
			out = append(out, t.repeat(i, random))
		}
	}
	if t.transaction {
		out = slices.Concat([]string{"BEGIN"}, out, []string{"COMMIT"})
	}
	return out
}

var (
	units = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen " +
		"fifteen sixteen seventeen eighteen nineteen")
	tens = strings.Fields("- - twenty thirty forty fifty sixty seventy eighty ninety")
)

// words spells a number below a million in words, as the page does.
func words(n int) string {
	switch {
	case n < 20:
		return units[n]
	case n < 100:
		return joined(tens[n/10], n%10)
	case n < 1000:
		return joined(units[n/100]+" hundred", n%100)
	}
	return joined(words(n/1000)+" thousand", n%1000)
}

func joined(head string, rest int) string {
	if rest == 0 {
		return head
	}
	return head + " " + words(rest)
}
