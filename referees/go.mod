module github.com/ringside-io/ringside/referees

go 1.26.0

require (
	github.com/hanwen/go-fuse/v2 v2.12.1
	github.com/ncruces/go-sqlite3 v0.35.6
	github.com/ringside-io/ringside v0.1.0
	github.com/ringside-io/ringside/sqlitevfs v0.1.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/ncruces/go-sqlite3-wasm/v6 v6.3.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
)

replace github.com/ringside-io/ringside => ../

replace github.com/ringside-io/ringside/sqlitevfs => ../sqlitevfs
