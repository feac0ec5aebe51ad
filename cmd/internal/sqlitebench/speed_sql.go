// SPDX-License-Identifier: MIT

package sqlitebench

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Tests is how many tests the speed page has.
const Tests = 16

// script makes the statements of the tests.
type script struct {
	random *rand.Rand
	scale  int // percent of the statements of the page
	out    []string
}

// speedTests are those of the page, in its order: each builds on the tables that those before left.
var speedTests = [Tests]func(*script){
	(*script).inserts, (*script).insertsTransaction, (*script).insertsIndexed,
	(*script).selects, (*script).selectsLike, (*script).createIndex, (*script).selectsIndexed,
	(*script).updates, (*script).updatesIndexed, (*script).updatesText, (*script).insertSelect,
	(*script).deleteLike, (*script).deleteIndexed, (*script).insertAll, (*script).deleteAll, (*script).drop,
}

// statements returns those of a test, which are the same for the same seed.
func statements(test int, seed uint64, scale int) []string {
	s := &script{random: rand.New(rand.NewPCG(seed, uint64(test))), scale: scale}
	speedTests[test](s)
	return s.out
}

func (s *script) add(format string, args ...any) { s.out = append(s.out, fmt.Sprintf(format, args...)) }

// times scales a number of repetitions of the page.
func (s *script) times(n int) int { return max(n*s.scale/100, 1) }

func (s *script) transaction(body func()) {
	s.add("BEGIN")
	body()
	s.add("COMMIT")
}

// rows inserts n of them, numbered from 1.
func (s *script) rows(table string, n, below int) {
	for i := range n {
		r := s.random.IntN(below)
		s.add("INSERT INTO %s VALUES(%d,%d,'%s')", table, i+1, r, words(r))
	}
}

func (s *script) inserts() {
	s.add("CREATE TABLE t1(a INTEGER, b INTEGER, c VARCHAR(100))")
	s.rows("t1", s.times(1000), 100_000)
}

func (s *script) insertsTransaction() {
	s.transaction(func() {
		s.add("CREATE TABLE t2(a INTEGER, b INTEGER, c VARCHAR(100))")
		s.rows("t2", s.times(25_000), 500_000)
	})
}

func (s *script) insertsIndexed() {
	s.transaction(func() {
		s.add("CREATE TABLE t3(a INTEGER, b INTEGER, c VARCHAR(100))")
		s.add("CREATE INDEX i3 ON t3(c)")
		s.rows("t3", s.times(25_000), 500_000)
	})
}

func (s *script) selects() {
	s.transaction(func() {
		for i := range s.times(100) {
			s.add("SELECT count(*), avg(b) FROM t2 WHERE b>=%d AND b<%d", i*100, i*100+1000)
		}
	})
}

func (s *script) selectsLike() {
	s.transaction(func() {
		for i := range s.times(100) {
			s.add("SELECT count(*), avg(b) FROM t2 WHERE c LIKE '%%%s%%'", words(i+1))
		}
	})
}

func (s *script) createIndex() {
	s.add("CREATE INDEX i2a ON t2(a)")
	s.add("CREATE INDEX i2b ON t2(b)")
}

func (s *script) selectsIndexed() {
	for i := range s.times(5000) {
		s.add("SELECT count(*), avg(b) FROM t2 WHERE b>=%d AND b<%d", i*100, i*100+100)
	}
}

func (s *script) updates() {
	s.transaction(func() {
		for i := range s.times(1000) {
			s.add("UPDATE t1 SET b=b*2 WHERE a>=%d AND a<%d", i*10, i*10+10)
		}
	})
}

func (s *script) updatesIndexed() {
	s.transaction(func() {
		for i := range s.times(25_000) {
			s.add("UPDATE t2 SET b=%d WHERE a=%d", s.random.IntN(500_000), i+1)
		}
	})
}

func (s *script) updatesText() {
	s.transaction(func() {
		for i := range s.times(25_000) {
			s.add("UPDATE t2 SET c='%s' WHERE a=%d", words(s.random.IntN(500_000)), i+1)
		}
	})
}

func (s *script) insertSelect() {
	s.transaction(func() {
		s.add("INSERT INTO t1 SELECT b,a,c FROM t2")
		s.add("INSERT INTO t2 SELECT b,a,c FROM t1")
	})
}

func (s *script) deleteLike() { s.add("DELETE FROM t2 WHERE c LIKE '%%fifty%%'") }

func (s *script) deleteIndexed() { s.add("DELETE FROM t2 WHERE a>10 AND a<20000") }

func (s *script) insertAll() { s.add("INSERT INTO t2 SELECT * FROM t1") }

func (s *script) deleteAll() {
	s.transaction(func() {
		s.add("DELETE FROM t1")
		s.rows("t1", s.times(3000), 100_000)
	})
}

func (s *script) drop() {
	s.add("DROP TABLE t1")
	s.add("DROP TABLE t2")
}

var (
	units = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen " +
		"fifteen sixteen seventeen eighteen nineteen")
	tens = strings.Fields("- - twenty thirty forty fifty sixty seventy eighty ninety")
)

// words names a number below a million, as the page does.
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
