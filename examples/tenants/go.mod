module github.com/ringside-io/ringside/examples/tenants

go 1.26.0

require (
	github.com/ncruces/go-sqlite3 v0.35.6
	github.com/ringside-io/ringside v0.1.0
	github.com/ringside-io/ringside/sqlitevfs v0.1.0
	github.com/ringside-io/ringside/sqlitevfs/backup v0.1.0
)

require (
	github.com/ncruces/go-sqlite3-wasm/v6 v6.3.35304 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	github.com/pierrec/lz4/v4 v4.1.23 // indirect
	github.com/superfly/ltx v0.5.3 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace (
	github.com/ringside-io/ringside => ../../
	github.com/ringside-io/ringside/sqlitevfs => ../../sqlitevfs
	github.com/ringside-io/ringside/sqlitevfs/backup => ../../sqlitevfs/backup
)
