//! A name server with fixed answers.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use hickory_resolver::proto::{
    op::{Message, MessageType, ResponseCode},
    rr::{RData, Record, RecordType},
};
use tokio::{net::UdpSocket, task::JoinSet};

/// Answers for every name with the same addresses, or that the name does not exist if there are
/// none.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl NameServer {
    pub(crate) async fn start(addresses: &[&str]) -> Self {
        Self::flipping(&[addresses]).await
    }

    /// Answers each query with the next set of addresses, the last set repeatedly. With more than
    /// one set the TTL is zero.
    pub(crate) async fn flipping(answers: &[&[&str]]) -> Self {
        let parse = |addresses: &&[&str]| addresses.iter().map(|address| address.parse().unwrap()).collect();
        let mut answers: VecDeque<Vec<IpAddr>> = answers.iter().map(parse).collect();
        let seconds = if answers.len() == 1 { 60 } else { 0 };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut packet = [0; 4096];
            while let Ok((length, client)) = socket.recv_from(&mut packet).await {
                let query = Message::from_vec(&packet[..length]).unwrap();
                let answer = answer(&query, &answers[0], seconds).to_vec().unwrap();
                let is_over = query.queries[0].query_type() == RecordType::A && answers.len() > 1;
                answers.drain(..usize::from(is_over));
                socket.send_to(&answer, client).await.unwrap();
            }
        });
        Self { address, _tasks: tasks }
    }
}

fn answer(query: &Message, addresses: &[IpAddr], seconds: u32) -> Message {
    let mut answer = query.clone();
    answer.metadata.message_type = MessageType::Response;
    answer.metadata.recursion_available = true;
    if addresses.is_empty() {
        answer.metadata.response_code = ResponseCode::NXDomain;
    }
    let question = query.queries[0].clone();
    for address in addresses {
        let data = match address {
            IpAddr::V4(v4) if question.query_type() == RecordType::A => RData::A((*v4).into()),
            IpAddr::V6(v6) if question.query_type() == RecordType::AAAA => RData::AAAA((*v6).into()),
            _ => continue,
        };
        answer.add_answer(Record::from_rdata(question.name().clone(), seconds, data));
    }
    answer
}
