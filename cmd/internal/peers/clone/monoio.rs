// SPDX-License-Identifier: MIT

// A thread for each processor, each with a listener on the same port.

use std::io::{BufRead, Write};

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::{ListenerOpts, TcpListener, TcpStream};

async fn echo(mut stream: TcpStream) {
    let mut buf: Vec<u8> = Vec::with_capacity(4096);
    loop {
        let (res, mut read) = stream.read(buf).await;
        match res {
            Ok(n) if n > 0 => {}
            _ => return,
        }
        let (res, back) = {
            let all = std::mem::take(&mut read);
            stream.write_all(all).await
        };
        if res.is_err() {
            return;
        }
        buf = back;
        buf.clear();
    }
}

async fn serve(addr: String, bound: Option<std::sync::mpsc::Sender<String>>) {
    let opts = ListenerOpts::new().reuse_addr(true).reuse_port(true);
    let listener = TcpListener::bind_with_config(addr.as_str(), &opts).expect("listen");
    if let Some(tx) = bound {
        tx.send(listener.local_addr().expect("address").to_string()).expect("send");
    }
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            monoio::spawn(echo(stream));
        }
    }
}

fn start(addr: String, bound: Option<std::sync::mpsc::Sender<String>>) {
    std::thread::spawn(move || {
        monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
            .with_entries(1024)
            .build()
            .expect("runtime")
            .block_on(serve(addr, bound));
    });
}

fn main() {
    let (tx, rx) = std::sync::mpsc::channel();
    start("127.0.0.1:0".to_string(), Some(tx));
    let addr = rx.recv().expect("the listener failed");
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    for _ in 1..processors {
        start(addr.clone(), None);
    }
    let mut out = std::io::stdout();
    writeln!(out, "{{\"addr\":\"{}\",\"pid\":{},\"backend\":\"io_uring\"}}", addr, std::process::id()).unwrap();
    out.flush().unwrap();
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        writeln!(out, "{{\"enters\":-1}}").unwrap();
        out.flush().unwrap();
    }
}
