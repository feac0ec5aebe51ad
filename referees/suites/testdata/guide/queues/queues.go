// SPDX-License-Identifier: MIT

// Package queues has the lines of docs/guide-http.md for message queues.
package queues

import (
	"net"
	"net/url"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/nats-io/nats.go"
	"github.com/segmentio/kafka-go"

	"github.com/ringside-io/ringside/unet"
)

var d = &unet.Dialer{}

// NATS uses a custom dialer.
func NATS(address string) (*nats.Conn, error) { return nats.Connect(address, nats.SetCustomDialer(d)) }

// Kafka uses Transport.Dial.
func Kafka(addr string) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(addr), Transport: &kafka.Transport{Dial: d.DialContext}}
}

// MQTT opens its connections by a function.
func MQTT(broker string) mqtt.Client {
	o := mqtt.NewClientOptions().AddBroker(broker)
	f := func(uri *url.URL, _ mqtt.ClientOptions) (net.Conn, error) { return d.Dial("tcp", uri.Host) }
	o.SetCustomOpenConnectionFn(f)
	return mqtt.NewClient(o)
}
