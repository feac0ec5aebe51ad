// SPDX-License-Identifier: MIT

// Package databases has the lines of docs/guide-http.md for databases and caches.
package databases

import (
	"context"
	"database/sql"
	"net"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/lib/pq"
	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/ringside-io/ringside/unet"
)

var d = &unet.Dialer{}

// Redis uses Options.Dialer.
func Redis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, Dialer: d.DialContext})
}

// Memcache uses Client.DialContext.
func Memcache(addr string) *memcache.Client {
	c := memcache.New(addr)
	c.DialContext = d.DialContext
	return c
}

// PGX uses Config.DialFunc.
func PGX(ctx context.Context, dsn string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.DialFunc = d.DialContext
	return pgx.ConnectConfig(ctx, config)
}

// dialer is a pq.DialerContext. pq asks for the two other methods.
type dialer struct{ unet.Dialer }

func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// PQ uses Connector.Dialer.
func PQ(dsn string) (*sql.DB, error) {
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	connector.Dialer(&dialer{})
	return sql.OpenDB(connector), nil
}

// MySQL registers a network, which is unet(host:port) in the DSN.
func MySQL(addr string) (*sql.DB, error) {
	f := func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	mysql.RegisterDialContext("unet", f)
	return sql.Open("mysql", "user@unet("+addr+")/db")
}

// Mongo uses the client's dialer.
func Mongo(uri string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().SetDialer(d).ApplyURI(uri))
}
